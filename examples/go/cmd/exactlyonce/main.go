// Copies a topic to another one, in upper case, each record exactly once: exactlyonce [-servers ...] [-count N] FROM TO GROUP. The
// records and the offsets that they were read at are one transaction.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"streamlog.org/examples/client"

	v1 "streamlog.org/api/streamlog/v1"
)

func main() {
	servers := flag.String("servers", "127.0.0.1:9092", "addresses of the nodes, separated by commas")
	id := flag.String("transactional-id", "upper-1", "each running copy of the program has its own")
	count := flag.Int("count", 0, "end after so many records; 0: at Ctrl-C")
	flag.Parse()
	from, to, group := flag.Arg(0), flag.Arg(1), flag.Arg(2)
	connection, err := client.Connect(*servers)
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	running, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// Before the first record is read: a transaction of an earlier copy ends, and its offsets with it.
	transactions, err := client.OpenTransactions(running, connection, *id, 60_000)
	if err != nil {
		log.Fatal(err)
	}
	defer transactions.Close()
	join := &v1.ConsumeJoin{
		Group: group, Topics: []string{from}, OffsetReset: v1.OffsetReset_OFFSET_RESET_EARLIEST,
		IsolationLevel: v1.IsolationLevel_ISOLATION_LEVEL_READ_COMMITTED, ClientId: "go-exactlyonce",
	}
	member := client.NewMember(connection, join)
	copied := 0
	for running.Err() == nil && (*count == 0 || copied < *count) {
		polled, err := member.Poll(running)
		if err != nil {
			log.Fatal(err)
		}
		if len(polled.Records) == 0 {
			continue
		}
		request := &v1.PublishStreamRequest{Topic: to, End: v1.TransactionEnd_TRANSACTION_END_COMMIT}
		offsets := &v1.TransactionOffsets{Group: group, Member: member.Identity()}
		for _, part := range polled.Records {
			for _, record := range part.Records {
				request.Records = append(request.Records, &v1.PublishRecord{Key: record.Key, Value: bytes.ToUpper(record.Value)})
			}
			offsets.Offsets = append(offsets.Offsets, &v1.OffsetToCommit{
				Topic: part.Topic, Partition: part.Partition, Offset: part.Records[len(part.Records)-1].Offset + 1,
			})
		}
		request.Offsets = []*v1.TransactionOffsets{offsets}
		committing, cancel := context.WithTimeout(context.Background(), time.Minute)
		ended, err := transactions.Write(committing, request)
		cancel()
		if err != nil {
			log.Fatal(err)
		}
		if ended.Outcome == v1.TransactionOutcome_TRANSACTION_OUTCOME_COMMITTED {
			copied += len(request.Records)
			continue
		}
		// The member has lost its partitions, and the offsets were refused: read again from the committed ones.
		fmt.Fprintln(os.Stderr, "aborted:", ended.Error.GetMessage())
		leave(member)
		member = client.NewMember(connection, join)
	}
	leave(member)
	fmt.Printf("%d records copied\n", copied)
}

func leave(member *client.Member) {
	leaving, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	member.Leave(leaving)
}
