// Writes each line of standard input as a record: producer [-servers ...] TOPIC
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"streamlog.org/examples/client"

	v1 "streamlog.org/api/streamlog/v1"
)

const linesPerRequest = 500

func main() {
	servers := flag.String("servers", "127.0.0.1:9092", "addresses of the nodes, separated by commas")
	flag.Parse()
	connection, err := client.Connect(*servers)
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	producer := client.NewProducer(connection)
	var records []*v1.PublishRecord
	written := 0
	publish := func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := producer.Publish(ctx, flag.Arg(0), records...); err != nil {
			log.Fatalf("after %d records: %v", written, err)
		}
		written, records = written+len(records), nil
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		records = append(records, &v1.PublishRecord{Value: []byte(lines.Text())})
		if len(records) == linesPerRequest {
			publish()
		}
	}
	if len(records) > 0 {
		publish()
	}
	fmt.Printf("%d records written\n", written)
}
