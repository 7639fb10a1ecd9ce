package client

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	v1 "streamlog.org/api/streamlog/v1"
)

// Transactions of one transactional id, one after another, on a PublishStream. If the stream breaks, another one is opened with
// the last token: it says whether the transaction was committed; if not, its requests are sent again.
type Transactions struct {
	connection *grpc.ClientConn
	writer     *v1.TransactionalWriter

	stream grpc.BidiStreamingClient[v1.PublishStreamRequest, v1.PublishStreamResponse]
	cancel context.CancelFunc
	token  []byte                     // of the open transaction, or the next one
	sent   []*v1.PublishStreamRequest // of the open transaction
	broken bool                       // one of them was refused: the transaction can only be aborted
}

// Ended is the result of a request: the outcome if it ended the transaction, and why it was aborted.
type Ended struct {
	Outcome v1.TransactionOutcome
	Results []*v1.PublishResult
	Error   *v1.StreamlogError
}

// OpenTransactions fences earlier producers with the same id, and aborts what they left open.
func OpenTransactions(ctx context.Context, connection *grpc.ClientConn, id string, timeoutMs int32) (*Transactions, error) {
	t := &Transactions{connection: connection, writer: &v1.TransactionalWriter{TransactionalId: id, TimeoutMs: timeoutMs}}
	for attempt := 0; ; attempt++ {
		_, err := t.open(ctx)
		if err == nil {
			return t, nil
		}
		if !MayRepeat(err) || !wait(ctx, attempt) {
			return nil, err
		}
	}
}

// Write sends records and offsets as part of the transaction, and ends it if the request has an end. A transaction that was
// aborted for a passing reason is written again; what its records or offsets were refused for is returned.
func (t *Transactions) Write(ctx context.Context, request *v1.PublishStreamRequest) (*Ended, error) {
	t.sent = append(t.sent, request)
	for attempt := 0; ; attempt++ {
		ended, err := t.try(ctx, request)
		if err == nil && (ended.Error == nil || t.broken || !passing(ended.Error)) {
			t.broken = t.broken || ended.Error != nil
			if request.End != v1.TransactionEnd_TRANSACTION_END_UNSPECIFIED {
				t.sent, t.broken = nil, false
			}
			return ended, nil
		}
		if err == nil {
			err = PartitionError{ended.Error}
		} else if !MayRepeat(err) {
			t.Close()
			return nil, err
		}
		t.Close() // an open transaction is aborted
		if !wait(ctx, attempt) {
			return nil, err
		}
	}
}

func (t *Transactions) try(ctx context.Context, request *v1.PublishStreamRequest) (*Ended, error) {
	if t.stream == nil {
		former, err := t.open(ctx)
		if err != nil {
			return nil, err
		}
		if former == v1.TransactionOutcome_TRANSACTION_OUTCOME_COMMITTED {
			return &Ended{Outcome: former}, nil
		}
		for _, earlier := range t.sent[:len(t.sent)-1] {
			if _, err := t.exchange(ctx, earlier); err != nil {
				return nil, err
			}
		}
	}
	response, err := t.exchange(ctx, request)
	if err != nil {
		return nil, err
	}
	ended := &Ended{Outcome: response.Outcome, Results: response.Results, Error: response.Error}
	if ended.Outcome == v1.TransactionOutcome_TRANSACTION_OUTCOME_ABORTED && request.End == v1.TransactionEnd_TRANSACTION_END_ABORT {
		ended.Error = nil // as it was wanted
		return ended, nil
	}
	for _, result := range response.Results {
		if result.Error != nil && (ended.Error == nil || ended.Error.Code == "TRANSACTION_ABORTABLE") {
			ended.Error = result.Error
		}
	}
	return ended, nil
}

// passing: another attempt may commit. Not one with the offsets of a member that was removed from its group.
func passing(err *v1.StreamlogError) bool {
	switch err.Details["cause_code"] {
	case "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID":
		return false
	}
	return err.Retriable || err.Code == "TRANSACTION_ABORTABLE"
}

func (t *Transactions) open(ctx context.Context) (v1.TransactionOutcome, error) {
	streaming, cancel := context.WithCancel(context.Background())
	stream, err := v1.NewRecordsClient(t.connection).PublishStream(streaming)
	if err != nil {
		cancel()
		return 0, err
	}
	t.stream, t.cancel = stream, cancel
	response, err := t.exchange(ctx, &v1.PublishStreamRequest{Transactional: t.writer, ProducerToken: t.token})
	if err != nil {
		t.Close()
		return 0, err
	}
	return response.FormerOutcome, nil
}

func (t *Transactions) exchange(ctx context.Context, request *v1.PublishStreamRequest) (*v1.PublishStreamResponse, error) {
	defer context.AfterFunc(ctx, t.cancel)() // no response within the time that the program allows

	_ = t.stream.Send(request) // if it fails, the receive has the reason
	response, err := t.stream.Recv()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && len(response.ProducerToken) > 0 {
		t.token = response.ProducerToken
	}
	return response, err
}

// Close aborts an open transaction.
func (t *Transactions) Close() {
	if t.stream != nil {
		t.cancel()
		t.stream = nil
	}
}
