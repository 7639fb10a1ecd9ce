// Reads a topic as a member of a group and prints the records: group [-servers ...] [-count N] TOPIC GROUP. Start it several times
// and stop some with Ctrl-C: the members share the partitions, and each record is read from the committed offsets on.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"streamlog.org/examples/client"

	v1 "streamlog.org/api/streamlog/v1"
)

func main() {
	servers := flag.String("servers", "127.0.0.1:9092", "addresses of the nodes, separated by commas")
	count := flag.Int("count", 0, "end after so many records; 0: at Ctrl-C")
	flag.Parse()
	connection, err := client.Connect(*servers)
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	running, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	member := client.NewMember(connection, &v1.ConsumeJoin{
		Group: flag.Arg(1), Topics: []string{flag.Arg(0)}, OffsetReset: v1.OffsetReset_OFFSET_RESET_EARLIEST, ClientId: "go-group",
	})
	for read := 0; running.Err() == nil && (*count == 0 || read < *count); {
		polled, err := member.Poll(running)
		if err != nil {
			log.Fatal(err)
		}
		var processed []*v1.ConsumeAcknowledgement
		for _, part := range polled.Records {
			for _, record := range part.Records {
				fmt.Printf("%s-%d@%d %s\n", part.Topic, part.Partition, record.Offset, record.Value)
			}
			read += len(part.Records)
			last := part.Records[len(part.Records)-1].Offset
			processed = append(processed, &v1.ConsumeAcknowledgement{Topic: part.Topic, Partition: part.Partition, Offset: last})
		}
		committing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		member.Commit(committing, processed)
		cancel()
	}
	leaving, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	member.Leave(leaving)
}
