package client

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "streamlog.org/api/streamlog/v1"
)

// ReadToEnd reads one partition from a position to its present end. A stream that breaks is opened again where it was.
func ReadToEnd(
	ctx context.Context, connection *grpc.ClientConn, topic string, partition int32, start *v1.StartPosition, isolation v1.IsolationLevel,
) (records []*v1.ReceivedRecord, position int64, err error) {
	for attempt := 0; ; attempt++ {
		stream, err := v1.NewRecordsClient(connection).Subscribe(ctx, &v1.SubscribeRequest{
			Subscriptions: []*v1.SubscribePartitions{{
				Topic: topic, Partitions: []int32{partition}, Start: start,
				End: &v1.EndPosition{Position: &v1.EndPosition_Bound{Bound: v1.OffsetBound_OFFSET_BOUND_LATEST}},
			}},
			IsolationLevel: isolation,
		})
		for err == nil {
			var response *v1.SubscribeResponse
			if response, err = stream.Recv(); err != nil {
				break
			}
			for _, part := range response.Partitions {
				if part.Error != nil {
					return nil, 0, PartitionError{part.Error}
				}
				records = append(records, part.Records...)
				position = part.Position
				start = &v1.StartPosition{Position: &v1.StartPosition_Offset{Offset: position}}
			}
		}
		if errors.Is(err, io.EOF) {
			return records, position, nil
		}
		if !MayRepeat(err) || !wait(ctx, attempt) {
			return nil, 0, err
		}
	}
}

// PartitionError is an error of a record or a partition in a response that is otherwise OK.
type PartitionError struct{ Detail *v1.StreamlogError }

func (e PartitionError) Error() string { return e.Detail.Code + ": " + e.Detail.Message }

// GRPCStatus lets Reason and MayRepeat read it as they read the error of a call.
func (e PartitionError) GRPCStatus() *status.Status {
	made := status.New(codes.FailedPrecondition, e.Detail.Message)
	return withReason(made, e.Detail)
}
