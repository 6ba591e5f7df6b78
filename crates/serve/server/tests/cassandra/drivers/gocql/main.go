// What gocql sees of a cluster: driver HOST PORT VERSION COMPRESSION KEYSPACE.
//
// Prints one line for each thing tried. Lines that begin with `~` may rightly differ between a node
// and a proxy; all others may not.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
	"github.com/apache/cassandra-gocql-driver/v2/snappy"
	"gopkg.in/inf.v0"
)

var keyspace = os.Args[5]

func main() {
	session := connected()
	defer session.Close()
	hosts()
	schema(session)
	parts := []func(*gocql.Session){types, paging, batches, conditions, extras, failures, metadata}
	for _, part := range parts {
		fmt.Println("==")
		part(session)
	}
	must(session.Query("DROP KEYSPACE " + keyspace).Exec())
	fmt.Println("done")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func cluster(in string) *gocql.ClusterConfig {
	cluster := gocql.NewCluster(os.Args[1])
	cluster.Port, _ = strconv.Atoi(os.Args[2])
	cluster.ProtoVersion, _ = strconv.Atoi(os.Args[3])
	switch os.Args[4] {
	case "lz4":
		cluster.Compressor = lz4.LZ4Compressor{}
	case "snappy":
		cluster.Compressor = snappy.SnappyCompressor{}
	}
	cluster.Keyspace = in
	cluster.Consistency = gocql.LocalQuorum
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 20 * time.Second
	cluster.MaxWaitSchemaAgreement = 60 * time.Second
	local := gocql.DCAwareRoundRobinPolicy("east")
	cluster.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(local)
	return cluster
}

// A session has the keyspace of its configuration: the first one makes it.
func connected() *gocql.Session {
	first, err := cluster("").CreateSession()
	must(err)
	must(first.Query("DROP KEYSPACE IF EXISTS " + keyspace).Exec())
	must(first.Query("CREATE KEYSPACE " + keyspace + " WITH replication = " +
		"{'class': 'NetworkTopologyStrategy', 'east': 1, 'west': 1}").Exec())
	first.Close()
	session, err := cluster(keyspace).CreateSession()
	must(err)
	return session
}

func hosts() {
	session, err := cluster("").CreateSession()
	must(err)
	defer session.Close()
	for _, host := range session.GetHosts() {
		fmt.Println("~host", host.HostnameAndPort(), host.DataCenter(), host.Rack(), host.HostID())
		fmt.Println("~host", len(host.Tokens()), host.State())
	}
	fmt.Println("cluster", session.GetHosts()[0].Version())
}

func schema(session *gocql.Session) {
	for _, statement := range []string{
		"CREATE TYPE place (street text, number int)",
		"CREATE TABLE many (k text, c int, b bigint, bl blob, bo boolean, de decimal, do double, " +
			"l frozen<list<int>>, m map<text, int>, s set<int>, ts timestamp, tu timeuuid, u uuid, " +
			"v varint, p frozen<place>, i inet, du duration, st int static, PRIMARY KEY (k, c))",
		"CREATE TABLE counts (k text PRIMARY KEY, n counter)",
		"CREATE TABLE plain (k int PRIMARY KEY, v text)",
		"CREATE TABLE pairs (a int, b text, c int, v int, PRIMARY KEY ((a, b), c))",
	} {
		must(session.Query(statement).Exec())
	}
}

func scan(iter *gocql.Iter) string {
	rows, err := iter.SliceMap()
	must(err)
	told := make([]string, 0, len(rows))
	for _, row := range rows {
		told = append(told, fmt.Sprint(row))
	}
	return strings.Join(told, " ")
}

func types(session *gocql.Session) {
	insert := "INSERT INTO many (k, c, b, bl, bo, de, do, l, m, s, ts, tu, u, v, p, i, du, st) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	timed, _ := gocql.ParseUUID("50554d6e-29bb-11e5-b345-feff819cdc9f")
	random, _ := gocql.ParseUUID("123e4567-e89b-42d3-a456-426614174000")
	huge := new(big.Int).Lsh(big.NewInt(1), 70)
	place := map[string]interface{}{"street": "road", "number": 5}
	must(session.Query(insert, "key", 1, int64(1)<<40, []byte{0, 255}, true, inf.NewDec(125, 2), 2.5,
		[]int{1, 2}, map[string]int{"a": 1}, []int{4, 3}, time.UnixMilli(1614834367000).UTC(), timed,
		random, huge, place, "192.0.2.7", gocql.Duration{Months: 1, Days: 2, Nanoseconds: 3},
		77).Exec())
	fmt.Println("row", scan(session.Query("SELECT * FROM many WHERE k = ?", "key").Iter()))
	few := "INSERT INTO many (k, c, b, st) VALUES (?, ?, ?, ?)"
	must(session.Query(few, "key", 2, nil, gocql.UnsetValue).Exec())
	fmt.Println("nulls", scan(session.Query("SELECT c, b, st FROM many WHERE k = 'key'").Iter()))
	named := session.Query("SELECT c FROM many WHERE k = :key AND c > :least",
		gocql.NamedValue("key", "key"), gocql.NamedValue("least", 1))
	fmt.Println("named", scan(named.Iter()))
	for number := 0; number < 50; number++ {
		must(session.Query("INSERT INTO pairs (a, b, c, v) VALUES (?, ?, ?, ?)",
			number%5, strings.Repeat("x", number%3), number, number).Exec())
	}
	for a := 0; a < 5; a++ {
		read := session.Query("SELECT v FROM pairs WHERE a = ? AND b = ?", a, "x")
		fmt.Println("composite", scan(read.Iter()))
	}
}

func paging(session *gocql.Session) {
	var all sync.WaitGroup
	for k := 0; k < 500; k++ {
		all.Add(1)
		go func(k int) {
			defer all.Done()
			must(session.Query("INSERT INTO plain (k, v) VALUES (?, ?)", k, fmt.Sprint(k)).Exec())
		}(k)
	}
	all.Wait()
	var rows, pages []int
	state := []byte(nil)
	for {
		iter := session.Query("SELECT k FROM plain").PageSize(37).PageState(state).Iter()
		pages = append(pages, iter.NumRows())
		state = iter.PageState()
		for range make([]struct{}, iter.NumRows()) {
			var k int
			iter.Scan(&k)
			rows = append(rows, k)
		}
		must(iter.Close())
		if len(state) == 0 {
			break
		}
	}
	fmt.Println("pages", pages, "order", rows[:20])
	iter, count, sum, k := session.Query("SELECT k FROM plain").PageSize(50).Iter(), 0, 0, 0
	for iter.Scan(&k) {
		count, sum = count+1, sum+k
	}
	must(iter.Close())
	fmt.Println("iterated", count, sum)
}

func batches(session *gocql.Session) {
	for _, kind := range []gocql.BatchType{gocql.LoggedBatch, gocql.UnloggedBatch} {
		batch := session.Batch(kind)
		for k := 1000; k < 1015; k++ {
			batch.Query("INSERT INTO plain (k, v) VALUES (?, ?)", k, fmt.Sprint("kind ", kind))
		}
		batch.Query("DELETE FROM plain WHERE k = 1003")
		iter := batch.Iter()
		fmt.Println("warnings", iter.Warnings())
		must(iter.Close())
		rows := session.Query("SELECT k, v FROM plain WHERE k IN (1000, 1003)").Iter()
		fmt.Println("batch", scan(rows))
	}
	batch := session.Batch(gocql.CounterBatch)
	for number := 0; number < 4; number++ {
		batch.Query("UPDATE counts SET n = n + ? WHERE k = ?", int64(number), fmt.Sprint("c", number%2))
	}
	must(batch.Exec())
	must(session.Query("UPDATE counts SET n = n - 1 WHERE k = 'c0'").Exec())
	fmt.Println("counts", scan(session.Query("SELECT * FROM counts").Iter()))
}

func conditions(session *gocql.Session) {
	for turn := 0; turn < 2; turn++ {
		row := map[string]interface{}{}
		insert := session.Query("INSERT INTO plain (k, v) VALUES (5000, ?) IF NOT EXISTS", "first")
		applied, err := insert.MapScanCAS(row)
		fmt.Println("applied", applied, err, row)
	}
	for _, expected := range []string{"wrong", "first"} {
		row := map[string]interface{}{}
		update := session.Query("UPDATE plain SET v = ? WHERE k = 5000 IF v = ?", "second", expected)
		applied, err := update.SerialConsistency(gocql.LocalSerial).MapScanCAS(row)
		fmt.Println("update", applied, err, row)
	}
	batch := session.Batch(gocql.LoggedBatch)
	batch.Query("UPDATE plain SET v = 'third' WHERE k = 5000 IF v = 'second'")
	row := map[string]interface{}{}
	applied, iter, err := batch.MapExecCAS(row)
	fmt.Println("batch", applied, iter.NumRows(), err, row)
	serial := session.Query("SELECT v FROM plain WHERE k = 5000").Consistency(gocql.Serial)
	fmt.Println("serial", scan(serial.Iter()))
}

func extras(session *gocql.Session) {
	var trace bytes.Buffer
	traced := session.Query("SELECT v FROM plain WHERE k = 5000")
	must(traced.Trace(gocql.NewTraceWriter(session, &trace)).Exec())
	fmt.Println("trace", strings.Contains(trace.String(), "Tracing session"))
	payload := map[string][]byte{"evenkeel-test": {1, 2}}
	iter := session.Query("SELECT v FROM plain WHERE k = 5000").CustomPayload(payload).Iter()
	fmt.Println("payload", iter.GetCustomPayload())
	must(iter.Close())
	insert := session.Query("INSERT INTO plain (k, v) VALUES (?, ?)", 6000, "x")
	must(insert.WithTimestamp(1234567).Exec())
	fmt.Println("writetime", scan(session.Query("SELECT WRITETIME(v) FROM plain WHERE k = 6000").Iter()))
	must(session.Query("INSERT INTO plain (k, v) VALUES (?, ?)", 7000, strings.Repeat("large ", 100_000)).Exec())
	var large string
	must(session.Query("SELECT v FROM plain WHERE k = ?", 7000).Scan(&large))
	fmt.Println("large", len(large))
	err := session.Query("SELECT v FROM plain WHERE k = ?", -1).Scan(&large)
	fmt.Println("not found", errors.Is(err, gocql.ErrNotFound))
}

func failures(session *gocql.Session) {
	for _, statement := range []string{
		"SELEKT 1", "SELECT nothing FROM plain", "SELECT * FROM no_such_table",
		"CREATE TABLE plain (k int PRIMARY KEY)", "SELECT * FROM plain WHERE v = 'x'",
		"INSERT INTO no_such_table (k) VALUES (?)",
	} {
		var values []interface{}
		if strings.Contains(statement, "?") {
			values = append(values, 1)
		}
		err := session.Query(statement, values...).Exec()
		var known gocql.RequestError
		fmt.Println("error", errors.As(err, &known), err)
		if known != nil {
			fmt.Printf("code %#x\n", known.Code())
		}
	}
	err := session.Query("SELECT * FROM plain WHERE k = 1").Consistency(gocql.Three).Exec()
	var unavailable *gocql.RequestErrUnavailable
	if errors.As(err, &unavailable) {
		fmt.Println("unavailable", unavailable.Consistency, unavailable.Required, unavailable.Alive)
	} else {
		fmt.Println("unavailable did not come:", err)
	}
}

func metadata(session *gocql.Session) {
	// What it read before the tables were there is forgotten when it hears of them, a while later.
	known, err := session.KeyspaceMetadata(keyspace)
	must(err)
	for ends := time.Now().Add(20 * time.Second); len(known.Tables) < 4 && time.Now().Before(ends); {
		time.Sleep(100 * time.Millisecond)
		known, err = session.KeyspaceMetadata(keyspace)
		must(err)
	}
	tables := make([]string, 0, len(known.Tables))
	for name, table := range known.Tables {
		tables = append(tables, fmt.Sprint(name, table.OrderedColumns, len(table.PartitionKey)))
	}
	sort.Strings(tables)
	fmt.Println("tables", tables, known.StrategyClass, known.StrategyOptions)
	other, err := cluster(keyspace).CreateSession()
	must(err)
	defer other.Close()
	must(other.Query("CREATE TABLE later (k int PRIMARY KEY)").Exec())
	ends := time.Now().Add(20 * time.Second)
	seen := false
	for !seen && time.Now().Before(ends) {
		time.Sleep(100 * time.Millisecond)
		known, err = session.KeyspaceMetadata(keyspace)
		must(err)
		_, seen = known.Tables["later"]
	}
	fmt.Println("schema event", seen)
	must(other.Query("ALTER TABLE plain ADD more int").Exec())
	must(session.AwaitSchemaAgreement(context.Background()))
	fmt.Println("altered", scan(session.Query("SELECT * FROM plain WHERE k = ?", 6000).Iter()))
}
