package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/clientv3"
	recipe "go.etcd.io/etcd/contrib/recipes"
)

// putters is how many put the items that wait.
const putters = 20

// bunch is the number of items in a bunch.
const bunch = 20

// queues puts so many items into the queue of the lane in a lap, and takes as many.
func (p *peer) queues(t task, path func(lane int) string, items int) (interface{}, error) {
	return drive(t, func(lane int) (func() error, error) {
		queue := recipe.NewQueue(p.client, path(lane))
		return func() error {
			for item := 0; item < items; item++ {
				if err := queue.Enqueue(data); err != nil {
					return err
				}
			}
			for item := 0; item < items; item++ {
				if _, err := queue.Dequeue(); err != nil {
					return err
				}
			}
			return nil
		}, nil
	})
}

// waiting puts an item into a queue in which so many wait in a lap, and takes the first.
func (p *peer) waiting(t task) (interface{}, error) {
	path := fmt.Sprint(dir, "/waiting-", t.Waiting)
	there, err := p.client.Get(background, path+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return nil, err
	}
	missing := int64(t.Waiting) - there.Count
	ended := make(chan error)
	for lane := 0; lane < putters; lane++ {
		go func() {
			queue := recipe.NewQueue(p.client, path)
			for atomic.AddInt64(&missing, -1) >= 0 {
				if err := queue.Enqueue(data); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for lane := 0; lane < putters; lane++ {
		if failed := <-ended; failed != nil {
			err = failed
		}
	}
	if err != nil {
		return nil, err
	}
	return p.queues(t, func(int) string { return path }, 1)
}

// tasks submits a task in a lap, and waits for its result. A task is an item of a queue: the key of the result, and the
// data. The submitter deletes the result. Workers are as many as submitters.
func (p *peer) tasks(t task) (interface{}, error) {
	for ; p.workers < t.Clients; p.workers++ {
		go p.work()
	}
	own, err := p.leases(1)
	if err != nil {
		return nil, err
	}
	queue := recipe.NewQueue(p.client, dir+"/tasks")
	prefix := fmt.Sprintf("%s/results/%x-", dir, own[0].Lease())
	return drive(t, func(int) (func() error, error) {
		return func() error {
			key := fmt.Sprint(prefix, atomic.AddInt64(&submitted, 1))
			if err := queue.Enqueue(key + " " + data); err != nil {
				return err
			}
			result, err := p.result(key)
			if err == nil && result != data {
				err = errors.New("a task has another result than its data")
			}
			if err == nil {
				_, err = p.client.Delete(background, key)
			}
			return err
		}, nil
	})
}

// submitted is the number of tasks so far.
var submitted int64

// work does tasks until the process ends: a queue of this package cannot be left while it waits.
func (p *peer) work() {
	queue := recipe.NewQueue(p.client, dir+"/tasks")
	for {
		item, err := queue.Dequeue()
		if err == nil {
			key, result, _ := strings.Cut(item, " ")
			_, err = p.client.Put(background, key, result)
		}
		if err != nil {
			p.ended <- err
			return
		}
	}
}

// result waits until the key is there.
func (p *peer) result(key string) (string, error) {
	found, err := p.client.Get(background, key)
	if err != nil {
		return "", err
	}
	if len(found.Kvs) > 0 {
		return string(found.Kvs[0].Value), nil
	}
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	changes := p.client.Watch(ctx, key, clientv3.WithRev(found.Header.Revision+1))
	for {
		select {
		case change := <-changes:
			if err := change.Err(); err != nil {
				return "", err
			}
			if len(change.Events) > 0 {
				return string(change.Events[0].Kv.Value), nil
			}
		case err := <-p.ended:
			return "", err
		}
	}
}
