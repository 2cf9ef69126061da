// franz-go: an idempotent producer, a group that goes on where it stopped, and transactions.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var failed = false

func check(name string, work func() error) {
	if err := work(); err != nil {
		failed = true
		fmt.Printf("FAIL %s: %v\n", name, err)
		return
	}
	fmt.Printf("PASS %s\n", name)
}

func main() {
	seeds := kgo.SeedBrokers(strings.Split(os.Args[1], ",")...)
	run := fmt.Sprint(time.Now().UnixNano())
	topic := "franz-go-" + run
	ctx, stop := context.WithTimeout(context.Background(), 90*time.Second)
	defer stop()
	read := func(group string, count int, last string) error {
		client, err := kgo.NewClient(seeds, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		if err != nil {
			return err
		}
		defer client.Close()
		records := []*kgo.Record{}
		for len(records) < count {
			fetches := client.PollRecords(ctx, count-len(records))
			if err := fetches.Err(); err != nil {
				return err
			}
			records = append(records, fetches.Records()...)
		}
		if value := string(records[count-1].Value); value != last {
			return fmt.Errorf("the last value is %q", value)
		}
		return client.CommitRecords(ctx, records...)
	}
	check("an idempotent producer, and a topic that is created by itself", func() error {
		client, err := kgo.NewClient(seeds, kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			return err
		}
		defer client.Close()
		for number := 0; number < 10; number++ {
			record := &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint(number))}
			if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
				return err
			}
		}
		return nil
	})
	check("a group reads and commits", func() error { return read("franz-"+run, 5, "4") })
	check("the group goes on where it stopped", func() error { return read("franz-"+run, 5, "9") })
	check("transactions, of which one is aborted", func() error {
		client, err := kgo.NewClient(seeds, kgo.TransactionalID("txn-"+run), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			return err
		}
		defer client.Close()
		for _, value := range []string{"commit", "abort", "last"} {
			if err := client.BeginTransaction(); err != nil {
				return err
			}
			record := &kgo.Record{Topic: topic, Value: []byte(value)}
			if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
				return err
			}
			if err := client.EndTransaction(ctx, kgo.TransactionEndTry(value != "abort")); err != nil {
				return err
			}
		}
		return read("committed-"+run, 12, "last")
	})
	if failed {
		os.Exit(1)
	}
}
