package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/errgroup"
)

// mutex: eight sessions add to one counter without compare; only the lock keeps the sum right.
func mutex(ctx context.Context, cli *clientv3.Client) error {
	const sessions, rounds = 8, 5
	group, gctx := errgroup.WithContext(ctx)
	for range sessions {
		group.Go(func() error {
			session, err := concurrency.NewSession(cli, concurrency.WithTTL(10))
			if err != nil {
				return err
			}
			defer session.Close()
			m := concurrency.NewMutex(session, "mutex/lock")
			for range rounds {
				if err := m.Lock(gctx); err != nil {
					return err
				}
				value, err := get(gctx, cli, "mutex/counter")
				if err != nil {
					return err
				}
				n, _ := strconv.Atoi(value)
				if _, err := cli.Put(gctx, "mutex/counter", strconv.Itoa(n+1)); err != nil {
					return err
				}
				if err := m.Unlock(gctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	value, err := get(ctx, cli, "mutex/counter")
	if err != nil {
		return err
	}
	return expect("counter", value, strconv.Itoa(sessions*rounds))
}

// mutexLostSession: a held lock refuses TryLock; when its session ends the next one gets it.
func mutexLostSession(ctx context.Context, cli *clientv3.Client) error {
	first, err := concurrency.NewSession(cli, concurrency.WithTTL(5))
	if err != nil {
		return err
	}
	second, err := concurrency.NewSession(cli, concurrency.WithTTL(5))
	if err != nil {
		return err
	}
	defer second.Close()
	held := concurrency.NewMutex(first, "mutex2/lock")
	if err := held.Lock(ctx); err != nil {
		return err
	}
	other := concurrency.NewMutex(second, "mutex2/lock")
	if err := other.TryLock(ctx); !errors.Is(err, concurrency.ErrLocked) {
		return fmt.Errorf("TryLock of a held lock: %v", err)
	}
	got := make(chan error, 1)
	go func() { got <- other.Lock(ctx) }()
	if err := first.Close(); err != nil { // revokes its lease, and with it the lock
		return err
	}
	if err := <-got; err != nil {
		return err
	}
	resp, err := cli.Txn(ctx).If(other.IsOwner()).Then(clientv3.OpPut("mutex2/owned", "1")).Commit()
	if err != nil {
		return err
	}
	return expect("owner", resp.Succeeded, true)
}

// election: one leader at a time; the next follows when it resigns.
func election(ctx context.Context, cli *clientv3.Client) error {
	candidate := func() (*concurrency.Election, *concurrency.Session, error) {
		session, err := concurrency.NewSession(cli, concurrency.WithTTL(10))
		if err != nil {
			return nil, nil, err
		}
		return concurrency.NewElection(session, "election"), session, nil
	}
	a, sa, err := candidate()
	if err != nil {
		return err
	}
	defer sa.Close()
	b, sb, err := candidate()
	if err != nil {
		return err
	}
	defer sb.Close()
	if _, err := a.Leader(ctx); !errors.Is(err, concurrency.ErrElectionNoLeader) {
		return fmt.Errorf("leader before any campaign: %v", err)
	}
	if err := a.Campaign(ctx, "a"); err != nil {
		return err
	}
	won := make(chan error, 1)
	go func() { won <- b.Campaign(ctx, "b") }()
	if err := a.Proclaim(ctx, "a2"); err != nil {
		return err
	}
	resp, err := b.Leader(ctx)
	if err != nil {
		return err
	}
	if err := expect("leader", string(resp.Kvs[0].Value), "a2"); err != nil {
		return err
	}
	if err := a.Resign(ctx); err != nil {
		return err
	}
	if err := <-won; err != nil {
		return err
	}
	if err := a.Proclaim(ctx, "a3"); !errors.Is(err, concurrency.ErrElectionNotLeader) {
		return fmt.Errorf("proclaim after resigning: %v", err)
	}
	resp, err = a.Leader(ctx)
	if err != nil {
		return err
	}
	return expect("leader", string(resp.Kvs[0].Value), "b")
}

// electionObserve: an observer sees each leader's proposals in order.
func electionObserve(ctx context.Context, cli *clientv3.Client) error {
	session, err := concurrency.NewSession(cli)
	if err != nil {
		return err
	}
	defer session.Close()
	e := concurrency.NewElection(session, "observed")
	if err := e.Campaign(ctx, "1"); err != nil {
		return err
	}
	seen := concurrency.NewElection(session, "observed").Observe(ctx)
	for i := 1; i <= 5; i++ {
		resp := <-seen
		if len(resp.Kvs) != 1 {
			return fmt.Errorf("observed %v", resp)
		}
		if err := expect("proposal", string(resp.Kvs[0].Value), strconv.Itoa(i)); err != nil {
			return err
		}
		if err := e.Proclaim(ctx, strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	return nil
}

// stm: concurrent transfers between accounts keep their sum.
func stm(ctx context.Context, cli *clientv3.Client) error {
	const accounts, workers, transfers, start = 5, 6, 15, 100
	account := func(i int) string { return fmt.Sprintf("stm/%d", i%accounts) }
	for i := range accounts {
		if _, err := cli.Put(ctx, account(i), strconv.Itoa(start)); err != nil {
			return err
		}
	}
	group, gctx := errgroup.WithContext(ctx)
	for w := range workers {
		group.Go(func() error {
			for t := range transfers {
				from, to := account(w+t), account(w+2*t+1)
				_, err := concurrency.NewSTM(cli, func(s concurrency.STM) error {
					if from == to {
						return nil
					}
					a, _ := strconv.Atoi(s.Get(from))
					b, _ := strconv.Atoi(s.Get(to))
					s.Put(from, strconv.Itoa(a-1))
					s.Put(to, strconv.Itoa(b+1))
					return nil
				}, concurrency.WithAbortContext(gctx))
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	sum := 0
	for i := range accounts {
		value, err := get(ctx, cli, account(i))
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(value)
		sum += n
	}
	return expect("sum", sum, accounts*start)
}

// stmIsolations: every level reads its own writes, deletes, and takes a prefetch.
func stmIsolations(ctx context.Context, cli *clientv3.Client) error {
	for _, level := range []concurrency.Isolation{
		concurrency.SerializableSnapshot, concurrency.Serializable,
		concurrency.RepeatableReads, concurrency.ReadCommitted,
	} {
		key := fmt.Sprintf("iso/%d", level)
		apply := func(s concurrency.STM) error {
			s.Put(key, "1")
			if err := expect("own write", s.Get(key), "1"); err != nil {
				return err
			}
			s.Del(key + "/gone")
			return nil
		}
		_, err := concurrency.NewSTM(cli, apply, concurrency.WithIsolation(level),
			concurrency.WithPrefetch(key), concurrency.WithAbortContext(ctx))
		if err != nil {
			return fmt.Errorf("level %d: %w", level, err)
		}
		value, err := get(ctx, cli, key)
		if err != nil {
			return err
		}
		if err := expect(key, value, "1"); err != nil {
			return err
		}
	}
	return nil
}
