// franz-go with kgo.MaxVersions at a node that emulates a release: `franz BROKER VERSION RELEASE`.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	. "emulated/steps"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

var (
	topic   = fmt.Sprintf("franz-%d", time.Now().UnixNano())
	group   = "of-" + topic
	ctx, _  = context.WithTimeout(context.Background(), 60*time.Second)
	release = kversion.FromString("v" + os.Args[2])
)

func client(options ...kgo.Opt) *kgo.Client {
	if release == nil {
		panic("franz-go does not know " + os.Args[2])
	}
	return Must(kgo.NewClient(append(options, kgo.SeedBrokers(os.Args[1]), kgo.MaxVersions(release))...))
}

// read returns the values that a group's only member finds, and commits them.
func read(group string, wanted int, options ...kgo.Opt) []string {
	member := client(append(options, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	defer member.Close()
	values := []string{}
	for len(values) < wanted {
		fetches := member.PollRecords(ctx, wanted-len(values))
		Done(fetches.Err())
		for _, record := range fetches.Records() {
			values = append(values, string(record.Value))
		}
	}
	Done(member.CommitUncommittedOffsets(ctx))
	return values
}

func send(producer *kgo.Client, values []string) {
	for _, value := range values {
		Done(producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte(value)}).FirstErr())
	}
}

func inTransactions() {
	session := Must(kgo.NewGroupTransactSession(kgo.SeedBrokers(os.Args[1]), kgo.MaxVersions(release), kgo.TransactionalID("txn-"+topic),
		kgo.ConsumerGroup("in-"+topic), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())))
	defer session.Close()
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		Done(session.Begin())
		Done(session.PollRecords(ctx, 7).Err())
		send(session.Client(), Values("transaction"))
		Equal(Must(session.End(ctx, end)), bool(end))
	}
}

func main() {
	admin := kadm.NewClient(client())
	committed := func(group string) int64 {
		offset, _ := Must(admin.FetchOffsets(ctx, group)).Lookup(topic, 0)
		return offset.At
	}
	Step("create a topic", func() { Must(admin.CreateTopic(ctx, 1, 1, nil, topic)) })
	sent := []string{}
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	for name, codec := range codecs {
		Step("produce by "+name, func() {
			producer := client(kgo.ProducerBatchCompression(codec))
			defer producer.Close()
			send(producer, Values(name))
			sent = append(sent, Values(name)...)
		})
	}
	Step("produce without idempotence", func() {
		producer := client(kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
		defer producer.Close()
		send(producer, Values("plain"))
		sent = append(sent, Values("plain")...)
	})
	Step("consume in a group", func() { Equal(read(group, len(sent)), sent) })
	Step("read back the committed offset", func() { Equal(committed(group), len(sent)) })
	Step("an aborted and a committed transaction", inTransactions)
	Step("read what is committed", func() {
		found := read("committed-"+topic, len(sent)+Count, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		Equal(found, append(sent, Values("transaction")...))
		Equal(committed("in-"+topic), 7)
	})
	Step("delete records", func() {
		to := kadm.Offsets{}
		to.AddOffset(topic, 0, 3, -1)
		Done(Must(admin.DeleteRecords(ctx, to)).Error())
		first, _ := Must(admin.ListStartOffsets(ctx, topic)).Lookup(topic, 0)
		Equal(first.Offset, 3)
	})
	administer(admin)
	Step("describe and delete the group", func() {
		Equal(Must(admin.DescribeGroups(ctx, group))[group].State, "Empty")
		Done(Must(admin.DeleteGroup(ctx, group)).Err)
	})
	Step("delete the topic", func() { Must(admin.DeleteTopic(ctx, topic)) })
	Exit()
}
