package main

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/ordering"
)

// leasingCache: what one leasing client owns it answers by itself, and rightly.
func leasingCache(ctx context.Context, cli *clientv3.Client) error {
	lkv, closeKV, err := leasing.NewKV(cli, "leasing1/")
	if err != nil {
		return err
	}
	defer closeKV()
	for i := range 5 {
		want := strconv.Itoa(i)
		if _, err := lkv.Put(ctx, "lk", want); err != nil {
			return err
		}
		value, err := get(ctx, lkv, "lk")
		if err != nil {
			return err
		}
		if err := expect("lk", value, want); err != nil {
			return err
		}
	}
	resp, err := lkv.Txn(ctx).If(clientv3.Compare(clientv3.Value("lk"), "=", "4")).
		Then(clientv3.OpGet("lk"), clientv3.OpPut("lk2", "x")).Else(clientv3.OpGet("lk")).Commit()
	if err != nil {
		return err
	}
	if err := expect("txn", resp.Succeeded, true); err != nil {
		return err
	}
	if _, err := lkv.Delete(ctx, "lk"); err != nil {
		return err
	}
	value, err := get(ctx, lkv, "lk")
	if err != nil {
		return err
	}
	return expect("deleted lk", value, "")
}

// leasingTwoClients: a write of one takes ownership from the other; no stale answer.
func leasingTwoClients(ctx context.Context, cli *clientv3.Client) error {
	a, closeA, err := leasing.NewKV(cli, "leasing2/")
	if err != nil {
		return err
	}
	defer closeA()
	b, closeB, err := leasing.NewKV(cli, "leasing2/")
	if err != nil {
		return err
	}
	defer closeB()
	for i := range 6 {
		writer, reader := a, b
		if i%2 == 1 {
			writer, reader = b, a
		}
		want := strconv.Itoa(i)
		if _, err := writer.Put(ctx, "shared", want); err != nil {
			return err
		}
		value, err := get(ctx, reader, "shared")
		if err != nil {
			return err
		}
		if err := expect("shared", value, want); err != nil {
			return err
		}
	}
	return nil
}

// orderingKV: reads never go back, serializable ones neither.
func orderingKV(ctx context.Context, cli *clientv3.Client) error {
	violation := func(op clientv3.Op, resp clientv3.OpResponse, prevRev int64) error {
		return fmt.Errorf("answer older than revision %d", prevRev)
	}
	kv := ordering.NewKV(cli.KV, violation)
	last := int64(0)
	for i := range 50 {
		if _, err := kv.Put(ctx, "ordered", strconv.Itoa(i)); err != nil {
			return err
		}
		for _, opts := range [][]clientv3.OpOption{nil, {clientv3.WithSerializable()}} {
			resp, err := kv.Get(ctx, "ordered", opts...)
			if err != nil {
				return err
			}
			if resp.Header.Revision < last {
				return fmt.Errorf("revision %d after %d", resp.Header.Revision, last)
			}
			last = resp.Header.Revision
		}
		if _, err := kv.Txn(ctx).Then(clientv3.OpGet("ordered")).Commit(); err != nil {
			return err
		}
	}
	return nil
}

// namespaces: prefixed on the way in, stripped on the way out, for KV, watch and lease.
func namespaces(ctx context.Context, cli *clientv3.Client) error {
	kv := namespace.NewKV(cli.KV, "ns/")
	watcher := namespace.NewWatcher(cli.Watcher, "ns/")
	lease := namespace.NewLease(cli.Lease, "ns/")
	defer watcher.Close()
	granted, err := lease.Grant(ctx, 60)
	if err != nil {
		return err
	}
	events := watcher.Watch(ctx, "k", clientv3.WithCreatedNotify())
	<-events
	if _, err := kv.Put(ctx, "k", "v", clientv3.WithLease(granted.ID)); err != nil {
		return err
	}
	event := <-events
	if err := expect("event key", string(event.Events[0].Kv.Key), "k"); err != nil {
		return err
	}
	value, err := get(ctx, cli, "ns/k")
	if err != nil {
		return err
	}
	if err := expect("ns/k", value, "v"); err != nil {
		return err
	}
	left, err := lease.TimeToLive(ctx, granted.ID, clientv3.WithAttachedKeys())
	if err != nil {
		return err
	}
	if err := expect("attached", string(left.Keys[0]), "k"); err != nil {
		return err
	}
	resp, err := kv.Txn(ctx).If(clientv3.Compare(clientv3.Value("k"), "=", "v")).
		Then(clientv3.OpGet("", clientv3.WithPrefix()), clientv3.OpDelete("k", clientv3.WithPrevKV())).Commit()
	if err != nil {
		return err
	}
	if err := expect("txn", resp.Succeeded, true); err != nil {
		return err
	}
	got := resp.Responses[0].GetResponseRange()
	if err := expect("txn key", string(got.Kvs[0].Key), "k"); err != nil {
		return err
	}
	return expect("deleted", resp.Responses[1].GetResponseDeleteRange().Deleted, int64(1))
}
