package main

import (
	"fmt"
	"strconv"

	"go.etcd.io/etcd/clientv3/concurrency"
)

// nodes is the number of keys in a transaction over several.
const nodes = 4

// add adds 1 to each of some keys, which all clients want, in one transaction.
func (p *peer) add(t task, count int) (interface{}, error) {
	keys := make([]string, count)
	for key := range keys {
		keys[key] = fmt.Sprint(dir, "/", t.Work, "/", key)
	}
	before, err := p.sum(keys)
	if err != nil {
		return nil, err
	}
	// All keys are known in advance: one request reads them.
	prefetch := concurrency.WithPrefetch(keys...)
	done, err := drive(t, func(int) (func() error, error) {
		return func() error {
			_, err := concurrency.NewSTM(p.client, func(run concurrency.STM) error {
				for _, key := range keys {
					number, err := parse(run.Get(key))
					if err != nil {
						return err
					}
					run.Put(key, strconv.Itoa(number+1))
				}
				return nil
			}, prefetch)
			return err
		}, nil
	})
	if err != nil {
		return nil, err
	}
	after, err := p.sum(keys)
	if laps := done.(report).Laps; err == nil && after-before != laps {
		err = fmt.Errorf("%d additions were answered, and the sum has %d", laps, after-before)
	}
	return done, err
}

// sum returns what was added to each of the keys.
func (p *peer) sum(keys []string) (int, error) {
	sum := 0
	for place, key := range keys {
		found, err := p.client.Get(background, key)
		if err != nil {
			return 0, err
		}
		number := 0
		if len(found.Kvs) > 0 {
			if number, err = parse(string(found.Kvs[0].Value)); err != nil {
				return 0, err
			}
		}
		if place > 0 && number != sum {
			return 0, fmt.Errorf("a transaction was applied in part: %d and %d", sum, number)
		}
		sum = number
	}
	return sum, nil
}

// parse reads a number; a key that is not there reads as 0.
func parse(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.Atoi(text)
}
