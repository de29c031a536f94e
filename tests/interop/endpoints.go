// Package main is a process that uses the naming of etcd's own package. It executes a command on each line of its input,
// and answers each on a line.
//
//	target TARGET            the target of all further commands
//	offer NAME ADDR SAYS     adds an endpoint as long as the process lives, or replaces it
//	withdraw NAME            deletes an endpoint
//	list                     all endpoints, as NAME=ADDR=SAYS, sorted
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sort"
	"strings"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	"go.etcd.io/etcd/clientv3/naming/endpoints"
)

// The session's time to live in seconds: the shortest that etcd grants by default.
const ttl = 2

type naming struct {
	client  *clientv3.Client
	session *concurrency.Session
	manager endpoints.Manager
	target  string
}

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	names := naming{client: client, session: session}
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		answer, err := names.execute(strings.Fields(input.Text()))
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Println(answer)
	}
}

func (names *naming) execute(words []string) (answer string, err error) {
	ctx := context.Background()
	switch words[0] {
	case "target":
		names.target = words[1]
		names.manager, err = endpoints.NewManager(names.client, names.target)
		return "done", err
	case "offer":
		endpoint := endpoints.Endpoint{Addr: words[2], Metadata: words[3]}
		lease := clientv3.WithLease(names.session.Lease())
		return "done", names.manager.AddEndpoint(ctx, names.target+"/"+words[1], endpoint, lease)
	case "withdraw":
		return "done", names.manager.DeleteEndpoint(ctx, names.target+"/"+words[1])
	case "list":
		return names.list(ctx)
	}
	return "", fmt.Errorf("no command is called %q", words[0])
}

func (names *naming) list(ctx context.Context) (string, error) {
	all, err := names.manager.List(ctx)
	if err != nil {
		return "", err
	}
	lines := []string{}
	for key, endpoint := range all {
		name := strings.TrimPrefix(key, names.target+"/")
		lines = append(lines, fmt.Sprintf("%s=%s=%v", name, endpoint.Addr, endpoint.Metadata))
	}
	sort.Strings(lines)
	return strings.Join(lines, ","), nil
}
