package main

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	. "emulated/steps"
)

// reader collects the values of a group's only member, and commits after the last one.
type reader struct {
	values []string
	wanted int
	stop   context.CancelFunc
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		r.values = append(r.values, string(message.Value))
		session.MarkMessage(message, "read")
		if len(r.values) == r.wanted {
			session.Commit()
			r.stop()
		}
	}
	return nil
}

func read(config *sarama.Config, group string, wanted int) []string {
	member := Must(sarama.NewConsumerGroup(brokers, group, config))
	defer member.Close()
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	found := &reader{wanted: wanted, stop: stop}
	for ctx.Err() == nil {
		if err := member.Consume(ctx, []string{topic}, found); ctx.Err() == nil {
			Done(err)
		}
	}
	return found.values
}

func send(producer sarama.SyncProducer, values []string) {
	for _, value := range values {
		message := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("k"), Value: sarama.StringEncoder(value)}
		_, _, err := producer.SendMessage(message)
		Done(err)
	}
}
