// An in-memory broker in Go, franz-go's kfake: what a server costs that keeps nothing on a disk, in a compiled language.
package main

import (
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err == nil {
		_, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.SeedTopics(3, "t"))
	}
	if err != nil {
		panic(err)
	}
	select {}
}
