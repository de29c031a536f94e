package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/mirror"
	"go.etcd.io/etcd/mvcc/mvccpb"
)

// A copyOf is what a process has in memory of the keys below a prefix.
type copyOf struct {
	keys    map[string]*mvccpb.KeyValue
	updates clientv3.WatchChan
}

// crowd is the prefix of the keys to cache: synod's nodes, whose data begins with their name and the number of a change.
func crowd(t task) string {
	return fmt.Sprint("/crowd/", t.Nodes, "/")
}

// complete copies the keys again and again.
func (p *peer) complete(t task) (interface{}, error) {
	debug.FreeOSMemory()
	before := rss()
	var laps []time.Duration
	var grown uint64
	begun, cpuBefore := time.Now(), cpu()
	for goesOn(t, len(laps), begun) {
		ctx, cancel := context.WithCancel(background)
		started := time.Now()
		all, err := p.mirror(ctx, t)
		if err != nil {
			cancel()
			return nil, err
		}
		laps = append(laps, time.Since(started))
		if len(laps) == 1 {
			debug.FreeOSMemory()
			if after := rss(); after > before {
				grown = after - before
			}
		}
		err = all.expect(t)
		cancel()
		if err != nil {
			return nil, err
		}
	}
	done := tell(laps, time.Since(begun), cpu()-cpuBefore, grown)
	done.Nodes = t.Nodes
	return done, nil
}

// seen sets a key. A lap is from the call until the copy shows it.
func (p *peer) seen(t task) (interface{}, error) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	all, err := p.mirror(ctx, t)
	if err != nil {
		return nil, err
	}
	last := 0
	for key := range all.keys {
		if number, err := all.number(key); err != nil {
			return nil, err
		} else if number > last {
			last = number
		}
	}
	t.Clients = 1
	return drive(t, func(int) (func() error, error) {
		return func() error {
			last++
			node := last * 7919 % t.Nodes
			name := fmt.Sprintf("n%06d", node)
			key := fmt.Sprintf("%sd%03d//%s", crowd(t), node/250, name)
			value := fmt.Sprintf("%s %010d ", name, last)
			done := make(chan error, 1)
			go func() {
				_, err := p.client.Put(background, key, value+strings.Repeat("x", 100-len(value)))
				done <- err
			}()
			for number := 0; number != last; {
				if number, err = all.update(); err != nil {
					return err
				}
			}
			return <-done
		}, nil
	})
}

// changes follows the changes of another process. A lap is a change.
func (p *peer) changes(t task) (interface{}, error) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	all, err := p.mirror(ctx, t)
	if err != nil {
		return nil, err
	}
	first, err := all.update()
	if err != nil {
		return nil, err
	}
	last := first
	begun, cpuBefore := time.Now(), cpu()
	for goesOn(t, last-first, begun) {
		number, err := all.update()
		if err != nil {
			return nil, err
		}
		if number > last {
			last = number
		}
	}
	took, work := time.Since(begun), cpu()-cpuBefore
	laps := make([]time.Duration, last-first)
	for lap := range laps {
		laps[lap] = took / time.Duration(len(laps))
	}
	return tell(laps, took, work, rss()), nil
}

func (p *peer) mirror(ctx context.Context, t task) (*copyOf, error) {
	all := &copyOf{keys: make(map[string]*mvccpb.KeyValue)}
	syncer := mirror.NewSyncer(p.client, crowd(t), 0)
	pages, failed := syncer.SyncBase(ctx)
	for page := range pages {
		for _, kv := range page.Kvs {
			all.keys[string(kv.Key)] = kv
		}
	}
	err := <-failed
	if err == nil {
		all.updates = syncer.SyncUpdates(ctx)
	}
	return all, err
}

// update takes over what has changed, and returns the number of the last change.
func (all *copyOf) update() (int, error) {
	answer, open := <-all.updates
	if !open || answer.Err() != nil {
		return 0, errors.New("the keys are not watched any more")
	}
	number := 0
	for _, event := range answer.Events {
		key := string(event.Kv.Key)
		all.keys[key] = event.Kv
		var err error
		if number, err = all.number(key); err != nil {
			return 0, err
		}
	}
	return number, nil
}

// expect fails unless all keys are there, each with its own value.
func (all *copyOf) expect(t task) error {
	if len(all.keys) != t.Nodes {
		return fmt.Errorf("%d keys are copied, of %d", len(all.keys), t.Nodes)
	}
	for key := range all.keys {
		if _, err := all.number(key); err != nil {
			return err
		}
	}
	return nil
}

// number returns the number of the last change of a key.
func (all *copyOf) number(key string) (int, error) {
	kv := all.keys[key]
	words := strings.Split(string(kv.Value), " ")
	if len(kv.Value) != 100 || len(words) != 3 || !strings.HasSuffix(key, "/"+words[0]) {
		return 0, errors.New(key + " has other data than its own")
	}
	return strconv.Atoi(words[1])
}

// instance has a key with a lease until the process ends; or follows such keys, with several clients, until all know
// that there is none any more.
func (p *peer) instance(t task) (interface{}, error) {
	prefix := dir + "/services/"
	started := time.Now()
	if !t.Heir {
		own, err := p.leases(1)
		if err == nil {
			_, err = p.client.Put(background, prefix+"one", data, clientv3.WithLease(own[0].Lease()))
		}
		took := time.Since(started)
		return tell([]time.Duration{took}, took, 0, rss()), err
	}
	failed := make([]error, t.Clients)
	var done sync.WaitGroup
	for watcher := range failed {
		done.Add(1)
		go func(watcher int) {
			defer done.Done()
			failed[watcher] = p.untilGone(prefix)
		}(watcher)
	}
	done.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	took := time.Since(started)
	return tell([]time.Duration{took}, took, 0, rss()), nil
}

func (p *peer) untilGone(prefix string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: p.client.Endpoints()})
	if err != nil {
		return err
	}
	defer client.Close()
	found, err := client.Get(background, prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	if len(found.Kvs) != 1 {
		return errors.New("there is no instance to follow")
	}
	heard := client.Watch(background, prefix, clientv3.WithPrefix(), clientv3.WithRev(found.Header.Revision+1))
	for answer := range heard {
		for _, event := range answer.Events {
			if event.Type == mvccpb.DELETE {
				return nil
			}
		}
	}
	return errors.New("the instance is not watched any more")
}
