// IBM/sarama: the admin client, an idempotent producer, a consumer group, and transactions.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
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

type reader struct {
	values []string
	count  int
	stop   context.CancelFunc
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		if len(r.values) == r.count {
			return nil
		}
		r.values = append(r.values, string(message.Value))
		session.MarkMessage(message, "")
		if len(r.values) == r.count {
			session.Commit()
			r.stop()
			return nil
		}
	}
	return nil
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V4_1_0_0
	made.Producer.Return.Successes = true
	made.Producer.Idempotent = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Net.MaxOpenRequests = 1
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	return made
}

func main() {
	brokers := strings.Split(os.Args[1], ",")
	run := fmt.Sprint(time.Now().UnixNano())
	topic := "sarama-" + run
	read := func(group string, count int, last string) error {
		client, err := sarama.NewConsumerGroup(brokers, group, config())
		if err != nil {
			return err
		}
		defer client.Close()
		ctx, stop := context.WithTimeout(context.Background(), 40*time.Second)
		defer stop()
		found := &reader{count: count, stop: stop}
		for ctx.Err() == nil {
			if err := client.Consume(ctx, []string{topic}, found); err != nil {
				return err
			}
		}
		if len(found.values) != count || found.values[count-1] != last {
			return fmt.Errorf("read %v", found.values)
		}
		return nil
	}
	check("create a topic", func() error {
		admin, err := sarama.NewClusterAdmin(brokers, config())
		if err != nil {
			return err
		}
		defer admin.Close()
		return admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	})
	check("an idempotent producer", func() error {
		producer, err := sarama.NewSyncProducer(brokers, config())
		if err != nil {
			return err
		}
		defer producer.Close()
		for number := 0; number < 10; number++ {
			message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fmt.Sprint(number))}
			if _, _, err := producer.SendMessage(message); err != nil {
				return err
			}
		}
		return nil
	})
	check("a group reads and commits", func() error { return read("sarama-"+run, 5, "4") })
	check("the group goes on where it stopped", func() error { return read("sarama-"+run, 5, "9") })
	check("transactions, of which one is aborted", func() error {
		settings := config()
		settings.Producer.Transaction.ID = "txn-" + run
		producer, err := sarama.NewSyncProducer(brokers, settings)
		if err != nil {
			return err
		}
		defer producer.Close()
		for _, end := range []string{"commit", "abort", "last"} {
			if err := producer.BeginTxn(); err != nil {
				return err
			}
			message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(end)}
			if _, _, err := producer.SendMessage(message); err != nil {
				return err
			}
			finish := producer.CommitTxn
			if end == "abort" {
				finish = producer.AbortTxn
			}
			if err := finish(); err != nil {
				return err
			}
		}
		return read("committed-"+run, 12, "last")
	})
	if failed {
		os.Exit(1)
	}
}
