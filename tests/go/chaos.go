package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/errgroup"
)

// The chaos program: locks, elections, transactions and a watch for a while, on members that somebody kills and
// starts again meanwhile. Calls may fail; a failed write counts as "perhaps". What was promised must hold.

const (
	callMax     = 4 * time.Second
	sessionTTL  = 3
	lockWorkers = 4
	stmAccounts = 5
	stmStart    = 100
)

// chaos is what its workers know together.
type chaos struct {
	endpoints []string
	until     time.Time
	// Increments under the lock: acknowledged, and perhaps made.
	acked, perhaps atomic.Int64
	locked, won    atomic.Int64
	moved          atomic.Int64
	puts           sync.Map // revision -> key
	putCount       atomic.Int64
}

func runChaos(length time.Duration, endpoints []string) error {
	c := &chaos{endpoints: endpoints, until: time.Now().Add(length)}
	setup, err := dial(endpoints...)
	if err != nil {
		return err
	}
	defer setup.Close()
	for i := range stmAccounts {
		if err := c.insist(func(ctx context.Context) error {
			_, err := setup.Put(ctx, account(i), strconv.Itoa(stmStart))
			return err
		}); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(context.Background())
	seen := &history{}
	watching, stop := context.WithCancel(ctx)
	group.Go(func() error { return c.watch(watching, seen) })
	var work errgroup.Group
	for range lockWorkers {
		work.Go(func() error { return c.lockLoop(ctx) })
	}
	for i := range 2 {
		work.Go(func() error { return c.electLoop(ctx, fmt.Sprint("candidate", i)) })
		work.Go(func() error { return c.stmLoop(ctx) })
		work.Go(func() error { return c.putLoop(ctx, i) })
	}
	err = work.Wait()
	if err == nil {
		err = c.check(ctx, setup, seen)
	}
	stop()
	if watched := group.Wait(); err == nil {
		err = watched
	}
	fmt.Printf("chaos: %d locks, %d increments and %d perhaps, %d wins, %d transfers, %d puts watched\n",
		c.locked.Load(), c.acked.Load(), c.perhaps.Load(), c.won.Load(), c.moved.Load(), c.putCount.Load())
	if err == nil && (c.acked.Load() == 0 || c.won.Load() == 0 || c.moved.Load() == 0 || c.putCount.Load() == 0) {
		return fmt.Errorf("some worker never got anything done")
	}
	return err
}

func account(i int) string { return fmt.Sprint("chaos/account/", i%stmAccounts) }

func (c *chaos) running() bool { return time.Now().Before(c.until) }

// insist repeats a harmless call until it succeeds, for a bounded time.
func (c *chaos) insist(call func(ctx context.Context) error) error {
	deadline := time.Now().Add(checkMax)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), callMax)
		err := call(ctx)
		cancel()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// with runs one turn with a client and a session of its own; errors of calls end the turn, not the program.
func (c *chaos) with(ctx context.Context, turn func(ctx context.Context, cli *clientv3.Client, s *concurrency.Session) error) error {
	cli, err := dial(c.endpoints...)
	if err != nil {
		return err
	}
	defer cli.Close()
	for c.running() {
		limited, cancel := context.WithTimeout(ctx, 2*callMax)
		session, err := concurrency.NewSession(cli, concurrency.WithTTL(sessionTTL), concurrency.WithContext(limited))
		if err == nil {
			if err := turn(limited, cli, session); err != nil {
				cancel()
				return err
			}
			session.Close()
		}
		cancel()
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	}
	return nil
}

// fenced writes a fence and a counter if the holder's key is still there; the fence before must be older.
func fenced(ctx context.Context, cli *clientv3.Client, owner clientv3.Cmp, name string, fence, count int64) (bool, error) {
	resp, err := cli.Txn(ctx).If(owner).Then(
		clientv3.OpPut(name+"/fence", strconv.FormatInt(fence, 10), clientv3.WithPrevKV()),
		clientv3.OpPut(name+"/counter", strconv.FormatInt(count, 10)),
	).Commit()
	if err != nil || !resp.Succeeded {
		return false, err
	}
	if prev := resp.Responses[0].GetResponsePut().PrevKv; prev != nil {
		before, _ := strconv.ParseInt(string(prev.Value), 10, 64)
		if before > fence {
			return true, fmt.Errorf("BROKEN: fence %d of %s written after %d", fence, name, before)
		}
	}
	return true, nil
}

func broken(err error) bool { return err != nil && len(err.Error()) > 6 && err.Error()[:6] == "BROKEN" }

// lockLoop: the counter is read and written under the lock only.
func (c *chaos) lockLoop(ctx context.Context) error {
	return c.with(ctx, func(ctx context.Context, cli *clientv3.Client, s *concurrency.Session) error {
		m := concurrency.NewMutex(s, "chaos/lock")
		if m.Lock(ctx) != nil {
			return nil
		}
		c.locked.Add(1)
		owner := m.IsOwner()
		// The holder's fence is the revision that made its key.
		key, err := cli.Get(ctx, m.Key())
		if err != nil || len(key.Kvs) == 0 {
			return nil
		}
		fence := key.Kvs[0].CreateRevision
		value, err := get(ctx, cli, "chaos/lock-data/counter")
		if err != nil {
			return nil
		}
		n, _ := strconv.ParseInt(value, 10, 64)
		done, err := fenced(ctx, cli, owner, "chaos/lock-data", fence, n+1)
		switch {
		case broken(err):
			return err
		case err != nil:
			c.perhaps.Add(1)
			return nil
		case done:
			c.acked.Add(1)
		}
		if m.Unlock(ctx) != nil {
			return nil
		}
		// No longer the owner: nothing may be written under the old fence.
		if done, err := fenced(ctx, cli, owner, "chaos/lock-data", fence, -1); done || broken(err) {
			return fmt.Errorf("BROKEN: a write after unlocking succeeded (%v)", err)
		}
		return nil
	})
}

// electLoop: a leader's revision is above every earlier leader's.
func (c *chaos) electLoop(ctx context.Context, name string) error {
	return c.with(ctx, func(ctx context.Context, cli *clientv3.Client, s *concurrency.Session) error {
		e := concurrency.NewElection(s, "chaos/election")
		if e.Campaign(ctx, name) != nil {
			return nil
		}
		owner := clientv3.Compare(clientv3.CreateRevision(e.Key()), "=", e.Rev())
		done, err := fenced(ctx, cli, owner, "chaos/election-data", e.Rev(), 0)
		if broken(err) {
			return err
		}
		if done {
			c.won.Add(1)
		}
		_ = e.Resign(ctx)
		return nil
	})
}

// stmLoop: transfers keep the sum, whatever becomes of each.
func (c *chaos) stmLoop(ctx context.Context) error {
	cli, err := dial(c.endpoints...)
	if err != nil {
		return err
	}
	defer cli.Close()
	for c.running() {
		from, to := account(rand.IntN(stmAccounts)), account(rand.IntN(stmAccounts))
		if from == to {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, callMax)
		_, err := concurrency.NewSTM(cli, func(s concurrency.STM) error {
			a, _ := strconv.Atoi(s.Get(from))
			b, _ := strconv.Atoi(s.Get(to))
			s.Put(from, strconv.Itoa(a-1))
			s.Put(to, strconv.Itoa(b+1))
			return nil
		}, concurrency.WithAbortContext(limited))
		cancel()
		if err == nil {
			c.moved.Add(1)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// putLoop: keys of which each is written once.
func (c *chaos) putLoop(ctx context.Context, id int) error {
	cli, err := dial(c.endpoints...)
	if err != nil {
		return err
	}
	defer cli.Close()
	for i := 0; c.running(); i++ {
		key := fmt.Sprintf("chaos/seq/%d/%06d", id, i)
		limited, cancel := context.WithTimeout(ctx, callMax)
		resp, err := cli.Put(limited, key, "x")
		cancel()
		if err == nil {
			c.putCount.Add(1)
			if other, twice := c.puts.LoadOrStore(resp.Header.Revision, key); twice {
				return fmt.Errorf("BROKEN: revision %d given to %s and %v", resp.Header.Revision, key, other)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// history is what a watch told, in order.
type history struct {
	mu     sync.Mutex
	events []event
	at     int64
}

type event struct {
	revision int64
	key      string
}

func (h *history) add(resp clientv3.WatchResponse) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range resp.Events {
		if n := len(h.events); n > 0 && h.events[n-1].revision >= e.Kv.ModRevision {
			return fmt.Errorf("BROKEN: the watch told revision %d after %d", e.Kv.ModRevision, h.events[n-1].revision)
		}
		h.events = append(h.events, event{e.Kv.ModRevision, string(e.Kv.Key)})
	}
	// Not the header's revision: in a part of history that is the store's, as in etcd, and more parts follow.
	if n := len(h.events); n > 0 {
		h.at = h.events[n-1].revision
	}
	return nil
}

func (h *history) reached(revision int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at >= revision
}

// watch follows the keys of putLoop from the first revision on, over every member that dies.
func (c *chaos) watch(ctx context.Context, h *history) error {
	cli, err := dial(c.endpoints...)
	if err != nil {
		return err
	}
	defer cli.Close()
	for resp := range cli.Watch(ctx, "chaos/seq/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := resp.Err(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("BROKEN: the watch ended: %w", err)
		}
		if err := h.add(resp); err != nil {
			return err
		}
	}
	return nil
}

// check judges the end: the counter, the sum, and the watch against the whole history told anew.
func (c *chaos) check(ctx context.Context, cli *clientv3.Client, seen *history) error {
	var counter, sum int64
	var last int64
	read := func(ctx context.Context) error {
		// The last key of the watched prefix, so that the live watch comes to an end.
		resp, err := cli.Put(ctx, "chaos/seq/end", "x")
		if err != nil {
			return err
		}
		last = resp.Header.Revision
		value, err := get(ctx, cli, "chaos/lock-data/counter")
		if err != nil {
			return err
		}
		counter, _ = strconv.ParseInt(value, 10, 64)
		accounts, err := cli.Get(ctx, "chaos/account/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		sum = 0
		for _, kv := range accounts.Kvs {
			n, _ := strconv.ParseInt(string(kv.Value), 10, 64)
			sum += n
		}
		return nil
	}
	if err := c.insist(read); err != nil {
		return err
	}
	if counter < c.acked.Load() || counter > c.acked.Load()+c.perhaps.Load() {
		return fmt.Errorf("BROKEN: counter %d after %d increments and %d perhaps", counter, c.acked.Load(), c.perhaps.Load())
	}
	if sum != stmAccounts*stmStart {
		return fmt.Errorf("BROKEN: the accounts hold %d", sum)
	}
	anew := &history{}
	whole, stop := context.WithCancel(ctx)
	defer stop()
	go func() { _ = c.watch(whole, anew) }()
	deadline := time.Now().Add(checkMax)
	for !seen.reached(last) || !anew.reached(last) {
		if time.Now().After(deadline) {
			return fmt.Errorf("BROKEN: a watch did not come to revision %d", last)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return compare(c, seen, anew)
}

func compare(c *chaos, seen, anew *history) error {
	seen.mu.Lock()
	defer seen.mu.Unlock()
	anew.mu.Lock()
	defer anew.mu.Unlock()
	if len(seen.events) != len(anew.events) {
		return fmt.Errorf("BROKEN: the watch told %d events, history has %d", len(seen.events), len(anew.events))
	}
	told := map[int64]string{}
	for i, e := range seen.events {
		if e != anew.events[i] {
			return fmt.Errorf("BROKEN: event %d was %v, history has %v", i, e, anew.events[i])
		}
		told[e.revision] = e.key
	}
	var err error
	c.puts.Range(func(revision, key any) bool {
		if told[revision.(int64)] != key.(string) {
			err = fmt.Errorf("BROKEN: put of %v at %v was acknowledged and never told", key, revision)
		}
		return err == nil
	})
	return err
}
