// Tenon as a sidecar of a Go program. It starts the binary as a child, waits for READY=1 on systemd's notify socket,
// uses etcd's own clientv3 through the local endpoint only, and has the host switch to server and back to client
// while it works. Its own work must not notice: every write succeeds, the watch tells every write once and in order.
//
//	go-sidecar -tenon PATH -members URL,URL,… -dir DIR -client URL -peer URL
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// What every request of the application has.
const deadline = 5 * time.Second

type sidecar struct {
	binary, endpoint string
	child            *exec.Cmd
	ended            chan error
}

// start runs the child and returns once it is ready to serve clients.
func start(binary, members, dir, client, peer string) (*sidecar, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	address := &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"}
	socket, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	child := exec.Command(binary, "serve",
		"--name=sidecar", "--data-dir="+filepath.Join(dir, "data"),
		"--mode=client", "--endpoints="+members,
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=sidecar="+peer)
	child.Env = append(os.Environ(), "NOTIFY_SOCKET="+address.Name)
	child.Stdout, child.Stderr = log, log
	if err := child.Start(); err != nil {
		return nil, err
	}
	s := &sidecar{binary: binary, endpoint: client, child: child, ended: make(chan error, 1)}
	go func() { s.ended <- child.Wait() }()
	if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return nil, err
	}
	buffer := make([]byte, 256)
	for {
		n, err := socket.Read(buffer)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the child is not ready: %w", err), s.stop())
		}
		if strings.Contains(string(buffer[:n]), "READY=1") {
			return s, nil
		}
	}
}

// switchTo has the host switch, and returns what it says of it.
func (s *sidecar) switchTo(mode string) (string, error) {
	said, err := exec.Command(s.binary, "host", "mode", mode, "--wait", "--endpoint", s.endpoint).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("to %s: %w: %s", mode, err, said)
	}
	return strings.TrimSpace(string(said)), nil
}

func (s *sidecar) stop() error {
	if err := s.child.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-s.ended:
		return err
	case <-time.After(30 * time.Second):
		return errors.Join(errors.New("the child does not end"), s.child.Process.Kill())
	}
}

// work writes numbers until it is told to stop, and returns how many.
func work(ctx context.Context, client *clientv3.Client) (int, error) {
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return n, nil
		}
		one, cancel := context.WithTimeout(context.Background(), deadline)
		_, err := client.Put(one, "sidecar/n", strconv.Itoa(n))
		cancel()
		if err != nil {
			return n, fmt.Errorf("write %d: %w", n, err)
		}
	}
}

// follow checks that the watch tells every number once and in order, up to and including `last`.
func follow(events clientv3.WatchChan, last <-chan int) error {
	next, total := 0, -1
	for {
		if total >= 0 && next >= total {
			return nil
		}
		select {
		case total = <-last:
			last = nil
		case answer, open := <-events:
			if !open || answer.Err() != nil {
				return fmt.Errorf("the watch ended after %d: %w", next, answer.Err())
			}
			for _, event := range answer.Events {
				if got := string(event.Kv.Value); got != strconv.Itoa(next) {
					return fmt.Errorf("the watch tells %s instead of %d", got, next)
				}
				next++
			}
		case <-time.After(20 * time.Second):
			return fmt.Errorf("the watch waits for %d of %d", next, total)
		}
	}
}

func run() (err error) {
	binary := flag.String("tenon", "tenon", "the program")
	members := flag.String("members", "", "client URLs of members, comma separated")
	dir := flag.String("dir", "", "folder of its own")
	url := flag.String("client", "http://127.0.0.1:2379", "the local endpoint")
	peer := flag.String("peer", "http://127.0.0.1:2380", "where peers reach it as a server")
	flag.Parse()
	s, err := start(*binary, *members, *dir, *url, *peer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint}, DialTimeout: deadline})
	if err != nil {
		return err
	}
	defer client.Close()

	watching, endWatch := context.WithCancel(context.Background())
	defer endWatch()
	created := client.Watch(watching, "sidecar/n", clientv3.WithCreatedNotify())
	if answer := <-created; answer.Err() != nil {
		return answer.Err()
	}
	last, followed := make(chan int, 1), make(chan error, 1)
	go func() { followed <- follow(created, last) }()
	working, endWork := context.WithCancel(context.Background())
	defer endWork()
	type done struct {
		writes int
		err    error
	}
	worked := make(chan done, 1)
	go func() {
		writes, err := work(working, client)
		worked <- done{writes, err}
	}()
	for _, mode := range []string{"server", "client"} {
		time.Sleep(500 * time.Millisecond)
		said, err := s.switchTo(mode)
		if err != nil {
			return err
		}
		fmt.Println(said)
	}
	endWork()
	end := <-worked
	last <- end.writes
	if err := errors.Join(end.err, <-followed); err != nil {
		return err
	}
	fmt.Printf("%d writes, each told once\n", end.writes)
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
