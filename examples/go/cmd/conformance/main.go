// The driver of the conformance suite (docs/conformance.md): commands as JSON lines on standard input, results on standard output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"streamlog.org/examples/client"

	v1 "streamlog.org/api/streamlog/v1"
)

type command struct {
	Id              int64    `json:"id"`
	Command         string   `json:"command"`
	TimeoutMs       int64    `json:"timeout_ms"`
	Servers         string   `json:"servers"`
	Topic           string   `json:"topic"`
	Topics          []string `json:"topics"`
	Partition       int32    `json:"partition"`
	Start           *int64   `json:"start"`
	ReadCommitted   bool     `json:"read_committed"`
	Records         []record `json:"records"`
	Producer        string   `json:"producer"`
	Member          string   `json:"member"`
	Group           string   `json:"group"`
	TransactionalId string   `json:"transactional_id"`
	TransactionMs   int32    `json:"transaction_timeout_ms"`
	ProcessingMs    int32    `json:"processing_timeout_ms"`
	Offsets         []offset `json:"offsets"`
	End             string   `json:"end"`
}

type record struct {
	Topic     string  `json:"topic,omitempty"`
	Partition *int32  `json:"partition,omitempty"`
	Offset    int64   `json:"offset"`
	Key       *string `json:"key"`
	Value     *string `json:"value"`
}

type offset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type answer struct {
	Id     int64    `json:"id"`
	Result any      `json:"result,omitempty"`
	Error  *failure `json:"error,omitempty"`
}

type object map[string]any

type driver struct {
	connection   *grpc.ClientConn
	producers    map[string]*client.Producer
	transactions map[string]*client.Transactions
	members      map[string]*client.Member
	groups       map[string]string
}

func main() {
	d := &driver{
		producers: map[string]*client.Producer{}, transactions: map[string]*client.Transactions{},
		members: map[string]*client.Member{}, groups: map[string]string{},
	}
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var c command
		if err := json.Unmarshal(line, &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.TimeoutMs)*time.Millisecond)
		result, err := d.run(ctx, &c)
		cancel()
		reply := answer{Id: c.Id, Result: result}
		if err != nil {
			reply = answer{Id: c.Id, Error: &failure{client.Reason(err), err.Error()}}
		}
		if err := out.Encode(reply); err != nil {
			return
		}
	}
}

func (d *driver) run(ctx context.Context, c *command) (object, error) {
	switch c.Command {
	case "connect":
		connection, err := client.Connect(c.Servers)
		if err != nil {
			return nil, err
		}
		d.connection = connection
		about, err := v1.NewClusterClient(connection).Describe(ctx, &v1.ClusterDescribeRequest{ClientVersion: "go-conformance"})
		return object{"version": about.GetVersion()}, err
	case "produce":
		if d.producers[c.Producer] == nil {
			d.producers[c.Producer] = client.NewProducer(d.connection)
		}
		results, err := d.producers[c.Producer].Publish(ctx, c.Topic, toWrite(c.Records)...)
		return object{"offsets": written(c.Topic, results)}, err
	case "read":
		return d.read(ctx, c)
	case "join":
		d.groups[c.Member] = c.Group
		d.members[c.Member] = client.NewMember(d.connection, &v1.ConsumeJoin{
			Group: c.Group, Topics: c.Topics, OffsetReset: v1.OffsetReset_OFFSET_RESET_EARLIEST, IsolationLevel: isolation(c),
			ProcessingTimeoutMs: c.ProcessingMs, ClientId: "go-conformance", HeartbeatIntervalMs: 500,
		})
		return object{}, nil
	case "poll":
		polled, err := d.members[c.Member].Poll(ctx)
		if err != nil {
			return nil, err
		}
		records := []record{}
		for _, part := range polled.Records {
			records = append(records, received(part.Topic, part.Partition, part.Records)...)
		}
		return object{
			"records": records, "assigned": partitions(polled.Assigned), "revoked": partitions(polled.Revoked), "lost": partitions(polled.Lost),
		}, nil
	case "commit":
		var offsets []*v1.ConsumeAcknowledgement
		for _, one := range c.Offsets {
			offsets = append(offsets, &v1.ConsumeAcknowledgement{Topic: one.Topic, Partition: one.Partition, Offset: one.Offset - 1})
		}
		done := []offset{}
		for _, one := range d.members[c.Member].Commit(ctx, offsets) {
			done = append(done, offset{one.Topic, one.Partition, one.Offset + 1})
		}
		return object{"committed": done}, nil
	case "leave":
		d.members[c.Member].Leave(ctx)
		delete(d.members, c.Member)
		return object{}, nil
	case "open_transactions":
		opened, err := client.OpenTransactions(ctx, d.connection, c.TransactionalId, c.TransactionMs)
		d.transactions[c.Producer] = opened
		return object{}, err
	case "transact":
		return d.transact(ctx, c)
	}
	return nil, errors.New("unknown command " + c.Command)
}

func (d *driver) read(ctx context.Context, c *command) (object, error) {
	start := &v1.StartPosition{Position: &v1.StartPosition_Bound{Bound: v1.OffsetBound_OFFSET_BOUND_EARLIEST}}
	if c.Start != nil {
		start = &v1.StartPosition{Position: &v1.StartPosition_Offset{Offset: *c.Start}}
	}
	records, position, err := client.ReadToEnd(ctx, d.connection, c.Topic, c.Partition, start, isolation(c))
	return object{"records": received(c.Topic, c.Partition, records), "position": position}, err
}

func (d *driver) transact(ctx context.Context, c *command) (object, error) {
	request := &v1.PublishStreamRequest{Topic: c.Topic, Records: toWrite(c.Records), End: map[string]v1.TransactionEnd{
		"commit": v1.TransactionEnd_TRANSACTION_END_COMMIT, "abort": v1.TransactionEnd_TRANSACTION_END_ABORT,
	}[c.End]}
	if len(c.Offsets) > 0 {
		offsets := &v1.TransactionOffsets{Group: d.groups[c.Member], Member: d.members[c.Member].Identity()}
		for _, one := range c.Offsets {
			offsets.Offsets = append(offsets.Offsets, &v1.OffsetToCommit{Topic: one.Topic, Partition: one.Partition, Offset: one.Offset})
		}
		request.Offsets = []*v1.TransactionOffsets{offsets}
	}
	ended, err := d.transactions[c.Producer].Write(ctx, request)
	if err != nil {
		return nil, err
	}
	outcome := map[v1.TransactionOutcome]string{
		v1.TransactionOutcome_TRANSACTION_OUTCOME_COMMITTED: "committed", v1.TransactionOutcome_TRANSACTION_OUTCOME_ABORTED: "aborted",
	}[ended.Outcome]
	refused := ended.Error.GetDetails()["cause_code"]
	if refused == "" {
		refused = ended.Error.GetCode()
	}
	return object{"outcome": outcome, "refused": refused}, nil
}

func isolation(c *command) v1.IsolationLevel {
	if c.ReadCommitted {
		return v1.IsolationLevel_ISOLATION_LEVEL_READ_COMMITTED
	}
	return v1.IsolationLevel_ISOLATION_LEVEL_READ_UNCOMMITTED
}

func toWrite(records []record) []*v1.PublishRecord {
	var made []*v1.PublishRecord
	for _, one := range records {
		made = append(made, &v1.PublishRecord{Key: bytes(one.Key), Value: bytes(one.Value), Partition: one.Partition})
	}
	return made
}

func received(topic string, partition int32, records []*v1.ReceivedRecord) []record {
	made := []record{}
	for _, one := range records {
		made = append(made, record{topic, &partition, one.Offset, text(one.Key), text(one.Value)})
	}
	return made
}

func written(topic string, results []*v1.PublishResult) []offset {
	made := []offset{}
	for _, one := range results {
		made = append(made, offset{topic, one.Partition, one.Offset})
	}
	return made
}

func partitions(given []*v1.TopicPartition) [][]any {
	made := [][]any{}
	for _, one := range given {
		made = append(made, []any{one.Topic, one.Partition})
	}
	return made
}

func bytes(given *string) []byte {
	if given == nil {
		return nil
	}
	return []byte(*given)
}

func text(given []byte) *string {
	if given == nil {
		return nil
	}
	made := string(given)
	return &made
}
