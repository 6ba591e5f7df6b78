// go-redis's ClusterClient: what it must be able to do, then counters without end.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

func check(name string, came, expected any) {
	if !reflect.DeepEqual(came, expected) {
		fmt.Printf("go-redis: %s: %#v, expected %#v\n", name, came, expected)
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

func main() {
	ctx := context.Background()
	options := redis.ClusterOptions{Addrs: os.Args[1:], ReadTimeout: 2 * time.Second}
	client := redis.NewClusterClient(&options)
	values := func(client *redis.ClusterClient) (all []string) {
		for n := range 64 {
			all = append(all, must(client.Get(ctx, fmt.Sprintf("go:%d", n)).Result()))
		}
		return
	}
	var numbers []string
	for n := range 64 {
		numbers = append(numbers, fmt.Sprint(n))
		must(client.Set(ctx, fmt.Sprintf("go:%d", n), n, 0).Result())
	}
	check("get", values(client), numbers)
	must(client.MSet(ctx, "{go}a", 1, "{go}b", 2).Result())
	check("mget", must(client.MGet(ctx, "{go}a", "{go}b").Result()), []any{"1", "2"})
	script := "return redis.call('incr', KEYS[1])"
	check("eval", must(client.Eval(ctx, script, []string{"{go}a"}).Result()), any(int64(2)))
	pipe := client.TxPipeline()
	incr := pipe.Incr(ctx, "{go}a")
	must(pipe.Exec(ctx))
	check("pipeline", incr.Val(), int64(3))
	var refused error
	client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		refused = node.MGet(ctx, "a", "b").Err()
		return nil
	})
	check("CROSSSLOT", strings.HasPrefix(fmt.Sprint(refused), "CROSSSLOT"), true)
	listener := client.SSubscribe(ctx, "go:channel")
	must(listener.Receive(ctx))
	must(client.SPublish(ctx, "go:channel", "hello").Result())
	check("smessage", must(listener.ReceiveMessage(ctx)).Payload, "hello")
	listener.Close()
	options.RouteRandomly = true
	readers := redis.NewClusterClient(&options)
	check("reads at replicas", values(readers), numbers)
	readers.Close()
	fmt.Println("ready")

	var ended atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	for n := 1; !ended.Load(); n++ {
		key := fmt.Sprintf("count:go:%d", n%50)
		if value, err := client.Incr(ctx, key).Result(); err != nil {
			fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok", key, value)
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Println("done")
}
