// try SERVER TOPIC: creates a topic, writes three records and reads them back.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	v1 "streamlog.org/api/streamlog/v1"
)

func main() {
	server, topic := os.Args[1], os.Args[2]
	connection, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	created, err := v1.NewAdminClient(connection).CreateTopics(ctx, &v1.CreateTopicsRequest{
		Topics: []*v1.NewTopic{{Name: topic, Partitions: proto.Int32(1)}},
	})
	check(err)
	if failed := created.Results[0].Error; failed != nil {
		log.Fatal(failed.Message)
	}
	records := v1.NewRecordsClient(connection)
	_, err = records.Publish(ctx, &v1.PublishRequest{
		Topic: topic, Records: []*v1.PublishRecord{{Value: []byte("one")}, {Value: []byte("two")}, {Value: []byte("three")}},
	})
	check(err)
	stream, err := records.Subscribe(ctx, &v1.SubscribeRequest{Subscriptions: []*v1.SubscribePartitions{{
		Topic: topic,
		Start: &v1.StartPosition{Position: &v1.StartPosition_Bound{Bound: v1.OffsetBound_OFFSET_BOUND_EARLIEST}},
		End:   &v1.EndPosition{Position: &v1.EndPosition_Bound{Bound: v1.OffsetBound_OFFSET_BOUND_LATEST}},
	}}})
	check(err)
	var values []string
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		check(err)
		for _, part := range response.Partitions {
			for _, record := range part.Records {
				values = append(values, string(record.Value))
			}
		}
	}
	fmt.Println(strings.Join(values, " "))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
