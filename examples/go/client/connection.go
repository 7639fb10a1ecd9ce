// Package client connects to a cluster as docs/clients.md says, and repeats what may be repeated: the three programs in cmd/
// see no error while a node fails.
package client

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // healthCheckConfig
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	v1 "streamlog.org/api/streamlog/v1"
)

const serviceConfig = `{
  "loadBalancingConfig": [{"round_robin": {}}],
  "healthCheckConfig": {"serviceName": "streamlog.v1.Records"},
  "methodConfig": [
    {"name": [{"service": "streamlog.v1.Records", "method": "Publish"}, {"service": "streamlog.v1.Admin"},
              {"service": "streamlog.v1.Batches", "method": "InitProducerId"}, {"service": "streamlog.v1.Cluster"}],
     "waitForReady": true, "timeout": "30s",
     "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2,
                     "retryableStatusCodes": ["UNAVAILABLE"]}},
    {"name": [{"service": "streamlog.v1.Records"}], "waitForReady": true}
  ]
}`

// A node that was restarted is connected again within two seconds, not within gRPC's two minutes.
var reconnect = backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}

// Connect takes the addresses of all nodes, separated by commas. gRPC balances over those that are healthy.
func Connect(servers string) (*grpc.ClientConn, error) {
	nodes := manual.NewBuilderWithScheme("streamlog")
	var state resolver.State
	for _, address := range strings.Split(servers, ",") {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{
			Addresses: []resolver.Address{{Addr: address, ServerName: host}},
		})
	}
	nodes.InitialState(state)
	return grpc.NewClient("streamlog:///nodes",
		grpc.WithResolvers(nodes),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // credentials.NewTLS for SSL:// listeners
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(4<<20)),
	)
}

// Reason of an error: the code of streamlog, or the status of gRPC where the error is not streamlog's.
func Reason(err error) string {
	if info := detail[*errdetails.ErrorInfo](err); info != nil && info.Domain == "streamlog" {
		return info.Reason
	}
	return status.Code(err).String()
}

// MayRepeat says whether a call that may be executed twice without harm is worth another attempt.
func MayRepeat(err error) bool {
	if detail[*errdetails.ErrorInfo](err) != nil {
		// Also of OUTCOME_UNKNOWN: without RetryInfo another attempt does not help, or does harm.
		return detail[*errdetails.RetryInfo](err) != nil
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal:
		return true // a connection broke: what the node did is unknown
	}
	return false
}

func detail[T any](err error) (none T) {
	for _, found := range status.Convert(err).Details() {
		if wanted, ok := found.(T); ok {
			return wanted
		}
	}
	return none
}

// wait before another attempt, or until there is no time left: then the error of the last attempt is the caller's.
func wait(ctx context.Context, attempt int) bool {
	delay := min(50*time.Millisecond<<min(attempt, 5), time.Second)
	select {
	case <-time.After(delay):
		return true
	case <-ctx.Done():
		return false
	}
}

func withReason(made *status.Status, err *v1.StreamlogError) *status.Status {
	details := []protoadapt.MessageV1{protoadapt.MessageV1Of(&errdetails.ErrorInfo{Domain: "streamlog", Reason: err.Code, Metadata: err.Details})}
	if err.Retriable {
		details = append(details, protoadapt.MessageV1Of(&errdetails.RetryInfo{}))
	}
	if full, failed := made.WithDetails(details...); failed == nil {
		return full
	}
	return made
}
