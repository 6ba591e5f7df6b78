package main

import gocql "github.com/apache/cassandra-gocql-driver/v2"

func main() { _ = gocql.Quorum }
