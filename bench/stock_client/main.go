// A client of gRPC in Go without streamlog's stubs, for benchmarks: the same call again and again, so many at a time.
//
//	stock_client ADDRESS METHOD CALLS IN_FLIGHT < encoded request
//
// Prints seconds, and p50 and p99 of one call in ms.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
)

const timeout = time.Minute

// Messages that are encoded already.
type encoded struct{}

func (encoded) Name() string                        { return "proto" }
func (encoded) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }
func (encoded) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

var _ encoding.Codec = encoded{}

func main() {
	address, method := os.Args[1], os.Args[2]
	calls, inFlight := number(os.Args[3]), number(os.Args[4])
	request, err := io.ReadAll(os.Stdin)
	check(err)
	connection, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(encoded{})))
	check(err)
	defer connection.Close()
	run(connection, method, request, calls/10+1, inFlight) // connects, and warms up
	begin := time.Now()
	took := run(connection, method, request, calls, inFlight)
	seconds := time.Since(begin).Seconds()
	slices.Sort(took)
	fmt.Println(seconds, ms(took[len(took)/2]), ms(took[len(took)*99/100]))
}

func run(connection *grpc.ClientConn, method string, request []byte, calls, inFlight int) []time.Duration {
	var next atomic.Int64
	var workers sync.WaitGroup
	took := make([]time.Duration, calls)
	for range inFlight {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for at := next.Add(1) - 1; at < int64(calls); at = next.Add(1) - 1 {
				begin := time.Now()
				call, cancel := context.WithTimeout(context.Background(), timeout)
				var response []byte
				check(connection.Invoke(call, method, &request, &response))
				cancel()
				took[at] = time.Since(begin)
			}
		}()
	}
	workers.Wait()
	return took
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func ms(took time.Duration) float64 { return took.Seconds() * 1e3 }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
