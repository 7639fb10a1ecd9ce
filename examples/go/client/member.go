package client

import (
	"context"

	"google.golang.org/grpc"
	v1 "streamlog.org/api/streamlog/v1"
)

const creditsAhead = 500

// Member of a consumer group. If its stream breaks it joins again: its partitions are lost, and reading continues after the
// committed offsets.
type Member struct {
	connection *grpc.ClientConn
	join       *v1.ConsumeJoin

	stream   grpc.BidiStreamingClient[v1.ConsumeRequest, v1.ConsumeResponse]
	cancel   context.CancelFunc
	received chan received
	ahead    []*v1.ConsumeResponse // received while a commit was awaited
	owned    map[partitionKey]bool
	revoked  []*v1.TopicPartition // given up at the next poll
	identity *v1.GroupMember
	waits    *v1.ConsumeStatus
}

type received struct {
	response *v1.ConsumeResponse
	err      error
}

type partitionKey struct {
	topic     string
	partition int32
}

// Polled is what happened since the last poll.
type Polled struct {
	Assigned, Revoked, Lost []*v1.TopicPartition
	Records                 []*v1.PartitionRecords
}

func (p *Polled) empty() bool {
	return len(p.Assigned)+len(p.Revoked)+len(p.Lost)+len(p.Records) == 0
}

func NewMember(connection *grpc.ClientConn, join *v1.ConsumeJoin) *Member {
	return &Member{connection: connection, join: join, owned: map[partitionKey]bool{}}
}

// Identity of the member, for offsets that are committed in a transaction.
func (m *Member) Identity() *v1.GroupMember { return m.identity }

// WaitsFor is what the node has last said about a silent stream, for people.
func (m *Member) WaitsFor() *v1.ConsumeStatus { return m.waits }

// Poll returns at the first records or change of the assignment, or with nothing when the context ends. Partitions that the
// previous poll reported as revoked are given up now: commit what was processed of them before.
func (m *Member) Poll(ctx context.Context) (*Polled, error) {
	polled := &Polled{}
	if len(m.revoked) > 0 {
		if err := m.send(&v1.ConsumeRequest{Released: m.revoked}); err != nil {
			m.lose(polled)
		}
		m.revoked = nil
	}
	for attempt := 0; ; attempt++ {
		response, err := m.next(ctx)
		switch {
		case err == nil && response == nil:
			return polled, nil // no more time
		case err == nil:
			m.take(response, polled)
		case MayRepeat(err) && wait(ctx, attempt):
			m.lose(polled)
		case ctx.Err() != nil:
			m.lose(polled)
			return polled, nil
		default:
			m.close()
			return nil, err
		}
		if !polled.empty() && len(m.ahead) == 0 {
			return polled, nil
		}
	}
}

func (m *Member) take(response *v1.ConsumeResponse, polled *Polled) {
	m.identity = response.Member
	switch news := response.News.(type) {
	case *v1.ConsumeResponse_Assigned:
		for _, one := range news.Assigned.Partitions {
			m.owned[partitionKey{one.Topic, one.Partition}] = true
		}
		polled.Assigned = append(polled.Assigned, news.Assigned.Partitions...)
	case *v1.ConsumeResponse_Revoked:
		m.forget(news.Revoked.Partitions)
		m.revoked = append(m.revoked, news.Revoked.Partitions...)
		polled.Revoked = append(polled.Revoked, news.Revoked.Partitions...)
	case *v1.ConsumeResponse_Lost:
		m.forget(news.Lost.Partitions)
		polled.Lost = append(polled.Lost, news.Lost.Partitions...)
	case *v1.ConsumeResponse_Records:
		if count := len(news.Records.Records); count > 0 {
			polled.Records = append(polled.Records, news.Records)
			_ = m.send(&v1.ConsumeRequest{Credits: int32(count)}) // if it fails, so does the next receive
		}
	case *v1.ConsumeResponse_Status:
		m.waits = news.Status
	}
}

func (m *Member) forget(partitions []*v1.TopicPartition) {
	for _, one := range partitions {
		delete(m.owned, partitionKey{one.Topic, one.Partition})
	}
}

// lose the stream and with it all partitions.
func (m *Member) lose(polled *Polled) {
	m.close()
	for one := range m.owned {
		polled.Lost = append(polled.Lost, &v1.TopicPartition{Topic: one.topic, Partition: one.partition})
	}
	clear(m.owned)
	polled.Records = nil // they come again
}

// Commit acknowledges records up to and with these offsets, and returns those partitions whose commit is replicated. The others
// were lost meanwhile; the next poll says so.
func (m *Member) Commit(ctx context.Context, offsets []*v1.ConsumeAcknowledgement) []*v1.ConsumeAcknowledgement {
	var done []*v1.ConsumeAcknowledgement
	if len(offsets) == 0 || m.send(&v1.ConsumeRequest{Acknowledgements: offsets}) != nil {
		return nil
	}
	for len(done) < len(offsets) {
		response := m.receive(ctx)
		if response == nil {
			return done
		}
		switch news := response.News.(type) {
		case *v1.ConsumeResponse_Committed:
			for _, one := range offsets {
				at := news.Committed
				if one.Topic == at.Topic && one.Partition == at.Partition && at.Offset > one.Offset {
					done = append(done, one)
				}
			}
		case *v1.ConsumeResponse_Lost:
			m.ahead = append(m.ahead, response)
			return done
		default:
			m.ahead = append(m.ahead, response)
		}
	}
	return done
}

// receive what comes, but leave an error to the next poll.
func (m *Member) receive(ctx context.Context) *v1.ConsumeResponse {
	select {
	case got := <-m.received:
		if got.err != nil {
			m.received <- got
		}
		return got.response
	case <-ctx.Done():
		return nil
	}
}

// Leave the group. What was not committed goes to another member.
func (m *Member) Leave(ctx context.Context) {
	if m.stream == nil {
		return
	}
	_ = m.stream.CloseSend()
	for {
		select {
		case got := <-m.received:
			if got.err == nil {
				continue
			}
		case <-ctx.Done():
		}
		m.close()
		return
	}
}

func (m *Member) next(ctx context.Context) (*v1.ConsumeResponse, error) {
	if len(m.ahead) > 0 {
		response := m.ahead[0]
		m.ahead = m.ahead[1:]
		return response, nil
	}
	if m.stream == nil {
		if err := m.open(); err != nil {
			return nil, err
		}
	}
	select {
	case got := <-m.received:
		return got.response, got.err
	case <-ctx.Done():
		return nil, nil
	}
}

func (m *Member) open() error {
	streaming, cancel := context.WithCancel(context.Background())
	stream, err := v1.NewRecordsClient(m.connection).Consume(streaming)
	if err != nil {
		cancel()
		return err
	}
	m.stream, m.cancel, m.received = stream, cancel, make(chan received, 1)
	go func(out chan received) {
		for {
			response, err := stream.Recv()
			select {
			case out <- received{response, err}:
			case <-streaming.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}(m.received)
	_ = m.send(&v1.ConsumeRequest{Join: m.join, Credits: creditsAhead}) // if it fails, so does the receive
	return nil
}

func (m *Member) send(request *v1.ConsumeRequest) error {
	if m.stream == nil {
		return context.Canceled
	}
	return m.stream.Send(request)
}

func (m *Member) close() {
	if m.stream != nil {
		m.cancel()
	}
	m.stream, m.ahead, m.revoked, m.identity = nil, nil, nil, nil
}
