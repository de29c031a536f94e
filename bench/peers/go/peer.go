// Package main is etcd's own concurrency package as a racer: a task on each line of the input, an
// answer on each line of the output.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	recipe "go.etcd.io/etcd/contrib/recipes"
)

const dir = "/go-bench"

var data = strings.Repeat("x", 100)

type task struct {
	Work    string
	Clients int
	Millis  int64
	Laps    int
	Heir    bool
	Nodes   int
	Waiting int
}

type report struct {
	Laps   int     `json:"laps"`
	Micros float64 `json:"micros"`
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	CPU    float64 `json:"cpu"`
	RSS    uint64  `json:"rss"`
	Nodes  int     `json:"nodes,omitempty"`
}

// A peer has one connection, and leases: an etcd lock belongs to a lease.
type peer struct {
	client   *clientv3.Client
	sessions []*concurrency.Session
	ttl      int
	// The number of workers that take tasks.
	workers int
	// Why a worker has ended.
	ended chan error
}

var background = context.Background()

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	millis, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	// Whole seconds, and not less than one.
	p := &peer{client: client, ttl: (millis + 999) / 1000, ended: make(chan error, 1)}
	tasks := bufio.NewScanner(os.Stdin)
	for tasks.Scan() {
		var t task
		var answer interface{}
		err := json.Unmarshal(tasks.Bytes(), &t)
		if err == nil {
			answer, err = p.run(t)
		}
		if err != nil {
			answer = map[string]string{"failed": err.Error()}
		}
		line, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}

func (p *peer) run(t task) (interface{}, error) {
	switch t.Work {
	case "get-local", "get", "set", "set-if-there", "create-delete":
		return p.nodes(t)
	case "lock":
		return p.locks(t)
	case "lock-contended", "lock-tasks":
		return p.contended(t)
	case "drain":
		return p.drain(t)
	case "read-write":
		return p.readWrite(t)
	case "increment", "increment-tasks":
		return p.add(t, 1)
	case "transaction":
		return p.add(t, nodes)
	case "queue-take":
		return p.queues(t, func(int) string { return dir + "/taken" }, 1)
	case "queue-bunches":
		return p.queues(t, func(lane int) string { return fmt.Sprint(dir, "/bunches-", lane) }, bunch)
	case "queue-short", "queue-long":
		return p.waiting(t)
	case "crew-tasks":
		return p.tasks(t)
	case "double-barrier":
		return p.rounds(t)
	case "cache-small", "cache-large", "cache-memory":
		return p.complete(t)
	case "cache-seen":
		return p.seen(t)
	case "cache-changes":
		return p.changes(t)
	case "observe":
		return p.observe(t)
	case "resign", "resign-late":
		return p.resign(t)
	case "lead":
		return p.lead()
	case "instance":
		return p.instance(t)
	}
	return map[string]string{"missing": t.Work}, nil
}

func (p *peer) nodes(t task) (interface{}, error) {
	own, err := p.leases(1)
	if err != nil {
		return nil, err
	}
	lease := clientv3.WithLease(own[0].Lease())
	return drive(t, func(lane int) (func() error, error) {
		node, made := fmt.Sprint(dir, "/nodes/", lane), fmt.Sprint(dir, "/made/", lane)
		if _, err := p.client.Put(background, node, data); err != nil {
			return nil, err
		}
		return func() error {
			switch t.Work {
			case "get-local":
				_, err := p.client.Get(background, node, clientv3.WithSerializable())
				return err
			case "get":
				_, err := p.client.Get(background, node)
				return err
			case "set":
				_, err := p.client.Put(background, node, data)
				return err
			case "set-if-there":
				return p.txn(clientv3.Compare(clientv3.Version(node), ">", 0),
					clientv3.OpPut(node, data, clientv3.WithIgnoreLease()))
			}
			err := p.txn(clientv3.Compare(clientv3.Version(made), "=", 0),
				clientv3.OpPut(made, data, lease))
			if err == nil {
				_, err = p.client.Delete(background, made)
			}
			return err
		}, nil
	})
}

func (p *peer) txn(when clientv3.Cmp, then clientv3.Op) error {
	done, err := p.client.Txn(background).If(when).Then(then).Commit()
	if err == nil && !done.Succeeded {
		err = errors.New("the transaction was refused, although no other client writes the key")
	}
	return err
}

func (p *peer) locks(t task) (interface{}, error) {
	own, err := p.leases(1)
	if err != nil {
		return nil, err
	}
	return drive(t, func(lane int) (func() error, error) {
		mutex := concurrency.NewMutex(own[0], fmt.Sprint(dir, "/locks/", lane))
		return func() error {
			if err := mutex.Lock(background); err != nil {
				return err
			}
			return mutex.Unlock(background)
		}, nil
	})
}

func (p *peer) contended(t task) (interface{}, error) {
	own, err := p.leases(t.Clients)
	if err != nil {
		return nil, err
	}
	var inside int32
	return drive(t, func(lane int) (func() error, error) {
		mutex := concurrency.NewMutex(own[lane], fmt.Sprint(dir, "/contended/", t.Clients))
		return func() error {
			if err := mutex.Lock(background); err != nil {
				return err
			}
			if err := alone(&inside); err != nil {
				return err
			}
			return mutex.Unlock(background)
		}, nil
	})
}

func (p *peer) drain(t task) (interface{}, error) {
	own, err := p.leases(t.Clients + 1)
	if err != nil {
		return nil, err
	}
	path := dir + "/drained"
	var laps []time.Duration
	var took, work time.Duration
	var memory uint64
	for lap := 0; lap == 0 || lap < t.Laps; lap++ {
		first := concurrency.NewMutex(own[t.Clients], path)
		if err := first.Lock(background); err != nil {
			return nil, err
		}
		inside := int32(1)
		var last int64
		handed := make(chan time.Duration, t.Clients)
		failed := make(chan error, t.Clients)
		for waiter := 0; waiter < t.Clients; waiter++ {
			go func(own *concurrency.Session) {
				mutex := concurrency.NewMutex(own, path)
				err := mutex.Lock(background)
				if err == nil {
					err = alone(&inside)
				}
				now := time.Now().UnixNano()
				waited := now - atomic.SwapInt64(&last, now)
				if err == nil {
					err = mutex.Unlock(background)
				}
				failed <- err
				handed <- time.Duration(waited)
			}(own[waiter])
		}
		if err := p.count(path+"/", t.Clients+1); err != nil {
			return nil, err
		}
		// They watch only some time after they stand in line.
		time.Sleep(time.Duration(200+t.Clients) * time.Millisecond)
		if now := rss(); now > memory {
			memory = now
		}
		begun, cpuBefore := time.Now(), cpu()
		atomic.StoreInt64(&last, begun.UnixNano())
		atomic.AddInt32(&inside, -1)
		if err := first.Unlock(background); err != nil {
			return nil, err
		}
		for waiter := 0; waiter < t.Clients; waiter++ {
			if err := <-failed; err != nil {
				return nil, err
			}
			laps = append(laps, <-handed)
		}
		took += time.Since(begun)
		work += cpu() - cpuBefore
	}
	return tell(laps, took, work, memory), nil
}

func (p *peer) readWrite(t task) (interface{}, error) {
	own, err := p.leases(t.Clients)
	if err != nil {
		return nil, err
	}
	var readers, inside int32
	return drive(t, func(lane int) (func() error, error) {
		lock := recipe.NewRWMutex(own[lane], dir+"/read-write")
		laps := lane
		return func() error {
			laps++
			if laps%10 == 0 {
				if err := lock.Lock(); err != nil {
					return err
				}
				if err := alone(&inside); err != nil {
					return err
				}
				if atomic.LoadInt32(&readers) != 0 {
					return errors.New("a reader and a writer at the same time")
				}
				return lock.Unlock()
			}
			if err := lock.RLock(); err != nil {
				return err
			}
			atomic.AddInt32(&readers, 1)
			runtime.Gosched()
			if atomic.LoadInt32(&inside) != 0 {
				return errors.New("a writer together with a reader")
			}
			atomic.AddInt32(&readers, -1)
			return lock.RUnlock()
		}, nil
	})
}

// rounds enters and leaves a double barrier. A lap is a round of all members.
func (p *peer) rounds(t task) (interface{}, error) {
	own, err := p.leases(t.Clients)
	if err != nil {
		return nil, err
	}
	members := make([]*recipe.DoubleBarrier, t.Clients)
	for member := range members {
		members[member] = recipe.NewDoubleBarrier(own[member], fmt.Sprint(dir, "/both-", t.Clients), t.Clients)
	}
	alone := t
	alone.Clients = 1
	return drive(alone, func(int) (func() error, error) {
		return func() error {
			failed := make([]error, len(members))
			var done sync.WaitGroup
			for member := range members {
				done.Add(1)
				go func(member int) {
					defer done.Done()
					if failed[member] = members[member].Enter(); failed[member] == nil {
						failed[member] = members[member].Leave()
					}
				}(member)
			}
			done.Wait()
			for _, err := range failed {
				if err != nil {
					return err
				}
			}
			return nil
		}, nil
	})
}

func (p *peer) observe(t task) (interface{}, error) {
	node := dir + "/observed"
	if _, err := p.client.Put(background, node, data); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	heard := p.client.Watch(ctx, node, clientv3.WithCreatedNotify())
	<-heard
	t.Clients = 1
	return drive(t, func(int) (func() error, error) {
		return func() error {
			done := make(chan error, 1)
			go func() {
				_, err := p.client.Put(background, node, data)
				done <- err
			}()
			<-heard
			return <-done
		}, nil
	})
}

func (p *peer) resign(t task) (interface{}, error) {
	own, err := p.leases(2)
	if err != nil {
		return nil, err
	}
	path := dir + "/leader"
	leader := concurrency.NewElection(own[0], path)
	if err := leader.Campaign(background, "0"); err != nil {
		return nil, err
	}
	var laps []time.Duration
	begun, cpuBefore := time.Now(), cpu()
	for lap := 1; goesOn(t, lap-1, begun); lap++ {
		next := concurrency.NewElection(own[lap%2], path)
		led := make(chan error, 1)
		go func() { led <- next.Campaign(background, "1") }()
		if err := p.count(path+"/", 2); err != nil {
			return nil, err
		}
		stood := 5 * time.Millisecond
		if t.Work == "resign-late" {
			stood = 300 * time.Millisecond
		}
		time.Sleep(stood)
		started := time.Now()
		if err := leader.Resign(background); err != nil {
			return nil, err
		}
		if err := <-led; err != nil {
			return nil, err
		}
		laps = append(laps, time.Since(started))
		leader = next
	}
	took, work := time.Since(begun), cpu()-cpuBefore
	if err := leader.Resign(background); err != nil {
		return nil, err
	}
	return tell(laps, took, work, rss()), nil
}

// lead leads until the process ends.
func (p *peer) lead() (interface{}, error) {
	own, err := p.leases(1)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	err = concurrency.NewElection(own[0], dir+"/killed").Campaign(background, "0")
	took := time.Since(started)
	return tell([]time.Duration{took}, took, 0, rss()), err
}

func (p *peer) leases(count int) ([]*concurrency.Session, error) {
	for len(p.sessions) < count {
		session, err := concurrency.NewSession(p.client, concurrency.WithTTL(p.ttl))
		if err != nil {
			return nil, err
		}
		p.sessions = append(p.sessions, session)
	}
	return p.sessions[:count], nil
}

// count waits until there are so many keys.
func (p *peer) count(prefix string, wanted int) error {
	for {
		found, err := p.client.Get(background, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || found.Count >= int64(wanted) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func alone(inside *int32) error {
	if atomic.AddInt32(inside, 1) != 1 {
		return errors.New("two hold one lock")
	}
	runtime.Gosched()
	atomic.AddInt32(inside, -1)
	return nil
}

func drive(t task, prepare func(lane int) (func() error, error)) (interface{}, error) {
	lanes := make([]func() error, t.Clients)
	for lane := range lanes {
		ready, err := prepare(lane)
		if err != nil {
			return nil, err
		}
		lanes[lane] = ready
	}
	all := make([][]time.Duration, t.Clients)
	failed := make([]error, t.Clients)
	var done sync.WaitGroup
	begun, cpuBefore := time.Now(), cpu()
	for lane := range lanes {
		done.Add(1)
		go func(lane int) {
			defer done.Done()
			for goesOn(t, len(all[lane]), begun) && failed[lane] == nil {
				started := time.Now()
				failed[lane] = lanes[lane]()
				all[lane] = append(all[lane], time.Since(started))
			}
		}(lane)
	}
	done.Wait()
	took, work := time.Since(begun), cpu()-cpuBefore
	var laps []time.Duration
	for lane := range lanes {
		if failed[lane] != nil {
			return nil, failed[lane]
		}
		laps = append(laps, all[lane]...)
	}
	return tell(laps, took, work, rss()), nil
}

func goesOn(t task, laps int, begun time.Time) bool {
	if t.Laps > 0 {
		return laps < t.Laps
	}
	return laps == 0 || time.Since(begun) < time.Duration(t.Millis)*time.Millisecond
}

func tell(laps []time.Duration, took, work time.Duration, memory uint64) report {
	sort.Slice(laps, func(i, j int) bool { return laps[i] < laps[j] })
	at := func(hundredths int) float64 {
		if len(laps) == 0 {
			return 0
		}
		return micros(laps[(len(laps)-1)*hundredths/100])
	}
	return report{len(laps), micros(took), at(50), at(90), at(99), micros(work), memory, 0}
}

func micros(time time.Duration) float64 {
	return float64(time.Nanoseconds()) / 1e3
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func rss() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for _, line := range bytes.Split(status, []byte("\n")) {
		if fields := strings.Fields(string(line)); len(fields) > 1 && fields[0] == "VmRSS:" {
			size, _ := strconv.ParseUint(fields[1], 10, 64)
			return size
		}
	}
	return 0
}
