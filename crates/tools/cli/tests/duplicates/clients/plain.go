// go-redis as a plain client or one of Sentinel: each step in RESP2 and RESP3, then counters,
// messages and pops without end. `plain plain|sentinel ADDRESS...`
package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

type naming func(string) string

func check(name string, came, expected any) {
	if !reflect.DeepEqual(came, expected) {
		fmt.Printf("go-redis: %s: %.500s, expected %.500s\n",
			name, fmt.Sprintf("%#v", came), fmt.Sprintf("%#v", expected))
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("go-redis:", err)
		os.Exit(1)
	}
	return value
}

func connect(protocol int) *redis.Client {
	if os.Args[1] == "sentinel" {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "chaos", SentinelAddrs: os.Args[2:], Protocol: protocol,
		})
	}
	return redis.NewClient(&redis.Options{Addr: os.Args[2], Protocol: protocol})
}

func protocol(client *redis.Client, key naming, version int) {
	said := fmt.Sprint(must(client.Do(ctx, "HELLO").Result()))
	seen := strings.Contains(said, fmt.Sprintf("proto:%d", version)) ||
		strings.Contains(said, fmt.Sprintf("proto %d", version))
	check("HELLO", seen, true)
}

func pipeline(client *redis.Client, key naming, _ int) {
	pipe := client.Pipeline()
	set, incr, get := pipe.Set(ctx, key("n"), 1, 0), pipe.Incr(ctx, key("n")), pipe.Get(ctx, key("n"))
	must(pipe.Exec(ctx))
	check("pipeline", []any{set.Val(), incr.Val(), get.Val()}, []any{"OK", int64(2), "2"})
}

func transaction(client *redis.Client, key naming, _ int) {
	pipe := client.TxPipeline()
	incr, get := pipe.Incr(ctx, key("n")), pipe.Get(ctx, key("n"))
	must(pipe.Exec(ctx))
	check("transaction", []any{incr.Val(), get.Val()}, []any{int64(3), "3"})
}

func watch(client *redis.Client, key naming, _ int) {
	var after int64
	try := func(between func()) error {
		return client.Watch(ctx, func(tx *redis.Tx) error {
			between()
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Incr(ctx, key("n"))
				return nil
			})
			return err
		}, key("n"))
	}
	err := try(func() { must(client.Set(ctx, key("n"), 10, 0).Result()) })
	check("watch", err, error(redis.TxFailedErr))
	check("watch again", try(func() {}), nil)
	after = must(client.Get(ctx, key("n")).Int64())
	check("watched", after, int64(11))
}

func script(client *redis.Client, key naming, _ int) {
	body := fmt.Sprintf("return {redis.call('incr', KEYS[1]), ARGV[1], '%s'}", key("script"))
	sum := sha1.Sum([]byte(body))
	digest, keys := hex.EncodeToString(sum[:]), []string{key("n")}
	err := client.EvalSha(ctx, digest, keys, "a").Err()
	check("unknown script", strings.HasPrefix(fmt.Sprint(err), "NOSCRIPT"), true)
	came := must(client.Eval(ctx, body, keys, "a").Result())
	check("EVAL", came, any([]any{int64(12), "a", key("script")}))
	came = must(client.EvalSha(ctx, digest, keys, "b").Result())
	check("EVALSHA", came, any([]any{int64(13), "b", key("script")}))
}

func pop(client *redis.Client, key naming, _ int) {
	came := make(chan []string)
	go func() { came <- must(client.BLPop(ctx, 4*time.Second, key("list")).Result()) }()
	for !strings.Contains(must(client.ClientList(ctx).Result()), "cmd=blpop") {
		time.Sleep(10 * time.Millisecond)
	}
	check("push", must(client.RPush(ctx, key("list"), "x").Result()), int64(1))
	check("pop", <-came, []string{key("list"), "x"})
}

func channels(client *redis.Client, key naming, _ int) {
	listener := client.Subscribe(ctx, key("channel"))
	must(listener.Receive(ctx))
	if err := listener.PSubscribe(ctx, key("chan*")); err != nil {
		must(0, err)
	}
	must(listener.Receive(ctx))
	check("publish", must(client.Publish(ctx, key("channel"), "hello").Result()), int64(2))
	var came []string
	for range 2 {
		message := must(listener.ReceiveMessage(ctx))
		came = append(came, message.Pattern+" "+message.Channel+" "+message.Payload)
	}
	end := " " + key("channel") + " hello"
	check("messages", came, []string{end, key("chan*") + end})
	listener.Close()
}

func stream(client *redis.Client, key naming, _ int) {
	for n := 1; n <= 3; n++ {
		id := fmt.Sprintf("%d-0", n)
		values := []any{"n", n}
		added := client.XAdd(ctx, &redis.XAddArgs{Stream: key("s"), ID: id, Values: values})
		check("XADD", must(added.Result()), id)
	}
	must(client.XGroupCreate(ctx, key("s"), "group", "0").Result())
	read := func(consumer string, count int64) (all []string) {
		came := must(client.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: "group", Consumer: consumer, Streams: []string{key("s"), ">"}, Count: count,
		}).Result())
		for _, message := range came[0].Messages {
			all = append(all, fmt.Sprint(message.ID, " ", message.Values["n"]))
		}
		return
	}
	check("XREADGROUP", read("a", 2), []string{"1-0 1", "2-0 2"})
	check("XACK", must(client.XAck(ctx, key("s"), "group", "1-0").Result()), int64(1))
	check("XREADGROUP of another", read("b", 9), []string{"3-0 3"})
	check("XPENDING", must(client.XPending(ctx, key("s"), "group").Result()).Count, int64(2))
	claimed, _, err := client.XAutoClaimJustID(ctx, &redis.XAutoClaimArgs{
		Stream: key("s"), Group: "group", Consumer: "b", Start: "0",
	}).Result()
	check("XAUTOCLAIM", must(claimed, err), []string{"2-0", "3-0"})
}

func scan(client *redis.Client, key naming, _ int) {
	var keys, found []string
	pipe, seen := client.Pipeline(), map[string]bool{}
	for n := range 3000 {
		keys = append(keys, key(fmt.Sprint("scan:", n)))
		pipe.Set(ctx, keys[n], n, 0)
	}
	must(pipe.Exec(ctx))
	pages := client.Scan(ctx, 0, key("scan:*"), 500).Iterator()
	for pages.Next(ctx) {
		if !seen[pages.Val()] {
			found = append(found, pages.Val())
		}
		seen[pages.Val()] = true
	}
	must(0, pages.Err())
	sort.Strings(keys)
	sort.Strings(found)
	check("scan", found, keys)
}

func maps(client *redis.Client, key naming, _ int) {
	must(client.HSet(ctx, key("hash"), "a", "1", "b", "2").Result())
	came := must(client.HGetAll(ctx, key("hash")).Result())
	check("hash", came, map[string]string{"a": "1", "b": "2"})
	must(client.ZAdd(ctx, key("sorted"), redis.Z{Score: 1.5, Member: "x"}).Result())
	members := must(client.ZRangeWithScores(ctx, key("sorted"), 0, -1).Result())
	check("sorted set", members, []redis.Z{{Score: 1.5, Member: "x"}})
}

func large(client *redis.Client, key naming, _ int) {
	value := strings.Repeat("x", 1<<20)
	must(client.Set(ctx, key("large"), value, 0).Result())
	check("large", must(client.Get(ctx, key("large")).Result()) == value, true)
	pipe := client.Pipeline()
	get := pipe.Get(ctx, key("large"))
	must(pipe.Exec(ctx))
	check("large in a pipeline", get.Val() == value, true)
}

var ended atomic.Bool

func line(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

// What waits for others: its errors are those of waiting, and it goes on.
func forever(act func() error, word string) {
	for !ended.Load() {
		err := act()
		if err == nil {
			fmt.Println(word)
		} else if !errors.Is(err, redis.Nil) {
			fmt.Println("waited", line(err))
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func main() {
	steps := []struct {
		name string
		act  func(*redis.Client, naming, int)
	}{
		{"protocol", protocol}, {"pipeline", pipeline}, {"transaction", transaction},
		{"watch", watch}, {"script", script}, {"pop", pop}, {"channels", channels},
		{"stream", stream}, {"scan", scan}, {"maps", maps}, {"large", large},
	}
	for version := 2; version <= 3; version++ {
		client := connect(version)
		for _, step := range steps {
			key := func(name string) string { return fmt.Sprintf("{go%d}:%s", version, name) }
			step.act(client, key, version)
			fmt.Printf("did %s in RESP%d\n", step.name, version)
		}
	}
	fmt.Println("ready")

	go func() {
		io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	client, waiting := connect(3), connect(3)
	listener := client.Subscribe(ctx, "{go}:channel")
	go forever(func() error { _, err := listener.ReceiveMessage(ctx); return err }, "heard")
	wait := 2 * time.Second
	go forever(func() error { return waiting.BLPop(ctx, wait, "{go}:queue").Err() }, "popped")
	for n := 1; !ended.Load(); n++ {
		key := fmt.Sprintf("count:go:%d", n%50)
		value, err := client.Incr(ctx, key).Result()
		if err == nil {
			fmt.Println("ok", key, value)
		}
		if err == nil && n%10 == 0 {
			pipe := client.Pipeline()
			pipe.Publish(ctx, "{go}:channel", n)
			pipe.RPush(ctx, "{go}:queue", n)
			_, err = pipe.Exec(ctx)
		}
		if err != nil {
			fmt.Println("error", line(err))
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Println("done")
}
