package client

import (
	"context"

	"google.golang.org/grpc"
	v1 "streamlog.org/api/streamlog/v1"
)

// Producer writes with an idempotence token: a request that got no response is sent again with the same token, and the records
// are in the log once. One request at a time.
type Producer struct {
	connection *grpc.ClientConn
	token      []byte
}

func NewProducer(connection *grpc.ClientConn) *Producer {
	return &Producer{connection: connection}
}

// Publish repeats what may be repeated until the context ends.
func (p *Producer) Publish(ctx context.Context, topic string, records ...*v1.PublishRecord) ([]*v1.PublishResult, error) {
	for attempt := 0; ; attempt++ {
		response, err := p.publish(ctx, topic, records)
		if err == nil {
			p.token = response.ProducerToken
			return response.Results, nil
		}
		if !MayRepeat(err) || !wait(ctx, attempt) {
			p.token = nil // records may be written: with the same token the next ones would pass for them
			return nil, err
		}
	}
}

func (p *Producer) publish(ctx context.Context, topic string, records []*v1.PublishRecord) (*v1.PublishResponse, error) {
	if p.token == nil {
		made, err := v1.NewBatchesClient(p.connection).InitProducerId(ctx, &v1.InitProducerIdRequest{})
		if err != nil {
			return nil, err
		}
		p.token = made.ProducerToken
	}
	request := &v1.PublishRequest{Topic: topic, Records: records, ProducerToken: p.token}
	return v1.NewRecordsClient(p.connection).Publish(ctx, request)
}
