// Package awsemulator starts an AWS emulator (SQS, SNS, DynamoDB and more) inside
// the process, on a free port of the loopback interface. The demo and the
// tests use it; production points the same code at AWS by starting none.
package awsemulator

import (
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/sivchari/kumo"

	"github.com/postrider/postrider/internal/awsbody"
)

// Region is the region in whose name the emulator answers.
const Region = "us-east-1"

// Server is a running emulator. Close it when done.
//
// All servers of one process are one: the emulator keeps its queues and tables
// in globals, and starting it while it runs is a data race in it. So Start
// returns the one that runs, if one does; give each test names of its own.
// KUMO_DATA_DIR, set before the process starts, makes the emulator keep its
// data in that folder.
type Server struct {
	// Endpoint is the base URL, such as "http://127.0.0.1:40123".
	Endpoint string

	close func()
}

var (
	mu      sync.Mutex
	running *kumo.Server
	before  *front // what the clients talk to
	users   int
)

// Start starts an emulator, or joins the one that runs in this process. It
// panics if no port of the loopback interface is free.
func Start() *Server {
	mu.Lock()
	defer mu.Unlock()
	if users == 0 {
		running = kumo.NewServer()
		before = startFront(running.URL)
	}
	users++
	return &Server{Endpoint: before.server.URL, close: sync.OnceFunc(leave)}
}

func leave() {
	mu.Lock()
	defer mu.Unlock()
	if users--; users == 0 {
		before.close()
		running.Close()
	}
}

// Config is the SDK configuration that reaches the emulator directly.
func (s *Server) Config() aws.Config { return Config(s.Endpoint) }

// Config is an SDK configuration for an emulator, or a proxy in front of one,
// at the given endpoint, with keys that mean nothing. It reads nothing from the
// environment.
func Config(endpoint string) aws.Config {
	return aws.Config{
		Region:       Region,
		BaseEndpoint: aws.String(endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("emulator", "emulator", ""),
		HTTPClient:   awsbody.Wrap(awshttp.NewBuildableClient()),
	}
}

// Close stops the emulator, unless others in the process use it too, and waits
// for the requests that it is answering; so stop consumers first. Safe to call
// twice.
func (s *Server) Close() { s.close() }
