// Package main is a process that uses the queue of etcd's recipes. It executes a command on each line of its input, and
// answers each on a line.
//
//	put PREFIX TEXT   puts an item
//	take PREFIX       waits for the first item, and answers with it
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"go.etcd.io/etcd/clientv3"
	recipe "go.etcd.io/etcd/contrib/recipes"
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

func execute(client *clientv3.Client, words []string) (string, error) {
	queue := recipe.NewQueue(client, words[1])
	switch words[0] {
	case "put":
		return "in", queue.Enqueue(words[2])
	case "take":
		return queue.Dequeue()
	}
	return "", fmt.Errorf("no command is called %q", words[0])
}
