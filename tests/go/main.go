// Command clients runs etcd's own Go client packages against one endpoint and checks what they promise:
// concurrency (mutex, election, STM), leasing, ordering, namespace, mirror and the recipes built on them.
//
// Usage: clients ENDPOINT, or clients chaos LENGTH ENDPOINT… (see chaos.go). Prints "ok NAME" for each check; exits 1 at the first that fails.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// check is one promise of a client package.
type check struct {
	name string
	run  func(ctx context.Context, cli *clientv3.Client) error
}

// checkMax bounds one check.
const checkMax = 30 * time.Second

func main() {
	if len(os.Args) > 3 && os.Args[1] == "chaos" {
		length, err := time.ParseDuration(os.Args[2])
		if err == nil {
			err = runChaos(length, os.Args[3:])
		}
		if err != nil {
			fmt.Printf("FAILED chaos: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: clients ENDPOINT")
		os.Exit(2)
	}
	endpoint := os.Args[1]
	for _, c := range []check{
		{"mutex", mutex},
		{"mutex-lost-session", mutexLostSession},
		{"election", election},
		{"election-observe", electionObserve},
		{"stm", stm},
		{"stm-isolations", stmIsolations},
		{"leasing", leasingCache},
		{"leasing-two-clients", leasingTwoClients},
		{"ordering", orderingKV},
		{"namespace", namespaces},
		{"mirror", mirrorSync},
		{"recipes", recipes},
		{"keep-alive", keepAlive},
		{"watch", watch},
	} {
		if err := run(endpoint, c); err != nil {
			fmt.Printf("FAILED %s: %v\n", c.name, err)
			os.Exit(1)
		}
		fmt.Printf("ok %s\n", c.name)
	}
}

func run(endpoint string, c check) error {
	cli, err := dial(endpoint)
	if err != nil {
		return err
	}
	defer cli.Close()
	ctx, cancel := context.WithTimeout(context.Background(), checkMax)
	defer cancel()
	return c.run(ctx, cli)
}

func dial(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second})
}

// expect is an error unless got is want.
func expect[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

// get is the value of key, "" when absent.
func get(ctx context.Context, kv clientv3.KV, key string) (string, error) {
	resp, err := kv.Get(ctx, key)
	if err != nil || len(resp.Kvs) == 0 {
		return "", err
	}
	return string(resp.Kvs[0].Value), nil
}
