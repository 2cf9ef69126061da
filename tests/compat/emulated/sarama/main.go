// IBM/sarama with config.Version at a node that emulates a release: `sarama BROKER VERSION RELEASE`.
package main

import (
	"fmt"
	"os"
	"time"

	. "emulated/steps"

	"github.com/IBM/sarama"
)

var (
	brokers = os.Args[1:2]
	version = Must(sarama.ParseKafkaVersion(os.Args[2] + ".0"))
	topic   = fmt.Sprintf("sarama-%d", time.Now().UnixNano())
	group   = "of-" + topic
	ours    = map[string][]int32{topic: {0}}
)

func settings() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = version
	made.Producer.Return.Successes = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Net.MaxOpenRequests = 1
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	return made
}

func inTransactions() {
	config := settings()
	config.Producer.Idempotent, config.Producer.Transaction.ID = true, "txn-"+topic
	producer := Must(sarama.NewSyncProducer(brokers, config))
	defer producer.Close()
	for _, end := range []func() error{producer.AbortTxn, producer.CommitTxn} {
		Done(producer.BeginTxn())
		send(producer, Values("transaction"))
		position := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: 7}
		Done(producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{topic: {position}}, "in-"+topic))
		Done(end())
	}
}

func main() {
	admin := Must(sarama.NewClusterAdmin(brokers, settings()))
	committed := func(group string) int64 {
		return Must(admin.ListConsumerGroupOffsets(group, ours)).GetBlock(topic, 0).Offset
	}
	exact := Has("0.11") // idempotence and transactions
	Step("create a topic", func() {
		Done(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	})
	sent := []string{}
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4}
	if Has("2.1") {
		codecs = append(codecs, sarama.CompressionZSTD)
	}
	for _, codec := range codecs {
		Step("produce by "+codec.String(), func() {
			config := settings()
			config.Producer.Compression, config.Producer.Idempotent = codec, exact
			producer := Must(sarama.NewSyncProducer(brokers, config))
			defer producer.Close()
			send(producer, Values(codec.String()))
			sent = append(sent, Values(codec.String())...)
		})
	}
	Step("consume in a group", func() { Equal(read(settings(), group, len(sent)), sent) })
	Step("read back the committed offset", func() { Equal(committed(group), len(sent)) })
	if exact {
		Step("an aborted and a committed transaction", inTransactions)
		Step("read what is committed", func() {
			config := settings()
			config.Consumer.IsolationLevel = sarama.ReadCommitted
			Equal(read(config, "committed-"+topic, len(sent)+Count), append(sent, Values("transaction")...))
			Equal(committed("in-"+topic), 7)
		})
		Step("delete records", func() {
			Done(admin.DeleteRecords(topic, map[int32]int64{0: 3}))
			client := Must(sarama.NewClient(brokers, settings()))
			defer client.Close()
			Equal(Must(client.GetOffset(topic, 0, sarama.OffsetOldest)), 3)
		})
	}
	administer(admin)
	if Has("1.1") {
		Step("describe and delete the group", func() {
			Equal(Must(admin.DescribeConsumerGroups([]string{group}))[0].State, "Empty")
			Done(admin.DeleteConsumerGroup(group))
		})
	}
	Step("delete the topic", func() { Done(admin.DeleteTopic(topic)) })
	Exit()
}
