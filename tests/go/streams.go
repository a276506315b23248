package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.etcd.io/etcd/client/v3/mirror"
)

// mirrorSync: a base copy of a prefix and all that comes after it.
func mirrorSync(ctx context.Context, cli *clientv3.Client) error {
	const keys = 30
	for i := range keys {
		if _, err := cli.Put(ctx, fmt.Sprintf("mirror/%02d", i), "x"); err != nil {
			return err
		}
	}
	syncer := mirror.NewSyncer(cli, "mirror/", 0)
	copied := 0
	responses, errs := syncer.SyncBase(ctx)
	for resp := range responses {
		copied += len(resp.Kvs)
	}
	if err := <-errs; err != nil {
		return err
	}
	if err := expect("copied", copied, keys); err != nil {
		return err
	}
	updates := syncer.SyncUpdates(ctx)
	if _, err := cli.Put(ctx, "mirror/later", "y"); err != nil {
		return err
	}
	update := <-updates
	return expect("update", string(update.Events[0].Kv.Key), "mirror/later")
}

// recipes: a queue gives each item once, a barrier holds until released.
func recipes(ctx context.Context, cli *clientv3.Client) error {
	queue := recipe.NewQueue(cli, "queue")
	for i := range 5 {
		if err := queue.Enqueue(strconv.Itoa(i)); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for range 5 {
		item, err := queue.Dequeue()
		if err != nil {
			return err
		}
		if seen[item] {
			return fmt.Errorf("item %s twice", item)
		}
		seen[item] = true
	}
	barrier := recipe.NewBarrier(cli, "barrier")
	if err := barrier.Hold(); err != nil {
		return err
	}
	released := make(chan error, 1)
	go func() { released <- recipe.NewBarrier(cli, "barrier").Wait() }()
	select {
	case err := <-released:
		return fmt.Errorf("went through a held barrier: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := barrier.Release(); err != nil {
		return err
	}
	select {
	case err := <-released:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keepAlive: a lease kept alive outlives its TTL; one that is not does not.
func keepAlive(ctx context.Context, cli *clientv3.Client) error {
	kept, err := cli.Grant(ctx, 2)
	if err != nil {
		return err
	}
	lost, err := cli.Grant(ctx, 2)
	if err != nil {
		return err
	}
	answers, err := cli.KeepAlive(ctx, kept.ID)
	if err != nil {
		return err
	}
	go func() {
		for range answers {
		}
	}()
	for key, id := range map[string]clientv3.LeaseID{"kept": kept.ID, "lost": lost.ID} {
		if _, err := cli.Put(ctx, "lease/"+key, "v", clientv3.WithLease(id)); err != nil {
			return err
		}
	}
	for event := range cli.Watch(ctx, "lease/lost", clientv3.WithRev(1), clientv3.WithFilterPut()) {
		if len(event.Events) > 0 {
			break
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the lost lease did not expire: %w", err)
	}
	value, err := get(ctx, cli, "lease/kept")
	if err != nil {
		return err
	}
	return expect("lease/kept", value, "v")
}

// watch: two watchers of one client see every write in order, from the start and live.
func watch(ctx context.Context, cli *clientv3.Client) error {
	const writes = 200
	first, err := cli.Put(ctx, "watch/0", "0")
	if err != nil {
		return err
	}
	early := cli.Watch(ctx, "watch/", clientv3.WithPrefix(), clientv3.WithRev(first.Header.Revision))
	for i := 1; i < writes; i++ {
		if _, err := cli.Put(ctx, fmt.Sprintf("watch/%d", i), strconv.Itoa(i)); err != nil {
			return err
		}
	}
	late := cli.Watch(ctx, "watch/", clientv3.WithPrefix(), clientv3.WithRev(first.Header.Revision), clientv3.WithPrevKV())
	for _, events := range []clientv3.WatchChan{early, late} {
		for next := 0; next < writes; {
			resp, open := <-events
			if !open || resp.Err() != nil {
				return fmt.Errorf("watch ended: %v", resp.Err())
			}
			for _, event := range resp.Events {
				if err := expect("event", string(event.Kv.Value), strconv.Itoa(next)); err != nil {
					return err
				}
				next++
			}
		}
	}
	return cli.RequestProgress(ctx)
}
