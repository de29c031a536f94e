// Package main is a process that uses the transactions of etcd's own package. It executes a command on each line of its
// input, and answers each on a line.
//
//	transfer SUM TIMES FROM TO...   moves 1 from the first account to each of the others in turn, TIMES in all, each in
//	                                one transaction that first checks that all accounts together have SUM
//	put KEY VALUE                   one transaction that writes a key
//	get KEY                         one transaction that reads it
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	defer client.Close()
	fmt.Println("ready")
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		answer, err := execute(client, strings.Fields(input.Text()))
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Println(answer)
	}
}

func execute(client *clientv3.Client, words []string) (answer string, err error) {
	switch words[0] {
	case "transfer":
		return transfer(client, words[1], words[2], words[3:])
	case "put":
		_, err = concurrency.NewSTM(client, func(run concurrency.STM) error {
			run.Put(words[1], words[2])
			return nil
		})
		return "done", err
	case "get":
		_, err = concurrency.NewSTM(client, func(run concurrency.STM) error {
			answer = run.Get(words[1])
			return nil
		})
		return answer, err
	}
	return "", fmt.Errorf("no command is called %q", words[0])
}

func transfer(client *clientv3.Client, wanted, count string, accounts []string) (string, error) {
	times, err := strconv.Atoi(count)
	if err != nil {
		return "", err
	}
	for made := 0; made < times; made++ {
		to := accounts[1+made%(len(accounts)-1)]
		_, err := concurrency.NewSTM(client, func(run concurrency.STM) error {
			held, sum := make(map[string]int), 0
			for _, account := range accounts {
				if held[account], err = strconv.Atoi(run.Get(account)); err != nil {
					return err
				}
				sum += held[account]
			}
			if strconv.Itoa(sum) != wanted {
				return fmt.Errorf("a transaction saw %d in all", sum)
			}
			run.Put(accounts[0], strconv.Itoa(held[accounts[0]]-1))
			run.Put(to, strconv.Itoa(held[to]+1))
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return "done", nil
}
