// segmentio/kafka-go: a writer, and a reader of a group that goes on where it stopped.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
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
	brokers := strings.Split(os.Args[1], ",")
	run := fmt.Sprint(time.Now().UnixNano())
	topic := "kafka-go-" + run
	ctx, stop := context.WithTimeout(context.Background(), 90*time.Second)
	defer stop()
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 20 * time.Second}
	read := func(count int, last string) error {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: brokers, Topic: topic, GroupID: "kafka-go-" + run, StartOffset: kafka.FirstOffset,
			MaxWait: 500 * time.Millisecond,
		})
		defer reader.Close()
		value := ""
		for number := 0; number < count; number++ {
			message, err := reader.FetchMessage(ctx)
			if err != nil {
				return err
			}
			value = string(message.Value)
			if err := reader.CommitMessages(ctx, message); err != nil {
				return err
			}
		}
		if value != last {
			return fmt.Errorf("the last value is %q", value)
		}
		return nil
	}
	check("create a topic", func() error {
		response, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
			Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}},
		})
		if err != nil {
			return err
		}
		return response.Errors[topic]
	})
	check("a writer with keys and headers", func() error {
		writer := &kafka.Writer{Addr: kafka.TCP(brokers...), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: kafka.Lz4}
		defer writer.Close()
		messages := []kafka.Message{}
		for number := 0; number < 10; number++ {
			header := kafka.Header{Key: "h", Value: []byte("1")}
			messages = append(messages, kafka.Message{Key: []byte("k"), Value: []byte(fmt.Sprint(number)), Headers: []kafka.Header{header}})
		}
		return writer.WriteMessages(ctx, messages...)
	})
	check("a group reads and commits", func() error { return read(5, "4") })
	check("the group goes on where it stopped", func() error { return read(5, "9") })
	if failed {
		os.Exit(1)
	}
}
