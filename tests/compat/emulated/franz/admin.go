package main

import (
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	. "emulated/steps"
)

// value returns a configuration's value, or ends the step.
func value(described kadm.ResourceConfigs, name string) string {
	Done(described[0].Err)
	for _, each := range described[0].Configs {
		if each.Key == name {
			return each.MaybeValue()
		}
	}
	panic("no " + name)
}

// administer describes and changes the topic and the cluster by what the release has.
func administer(admin *kadm.Client) {
	here := kadm.TopicsSet{}
	here.Add(topic, 0)
	Step("guess the release", func() {
		wanted := "v" + os.Args[3]
		if wanted == "v3.3" {
			wanted = "v3.4" // with a quorum these have the same APIs: a live 3.3.2 is guessed so, too
		}
		for _, broker := range Must(admin.ApiVersions(ctx)) {
			Equal(broker.VersionGuess(), wanted)
		}
	})
	Step("describe and alter configurations", func() {
		day := "86400000"
		Equal(value(Must(admin.DescribeBrokerConfigs(ctx, 1)), "log.retention.hours"), "168")
		Equal(value(Must(admin.DescribeTopicConfigs(ctx, topic)), "retention.ms"), "604800000")
		change := []kadm.AlterConfig{{Name: "retention.ms", Value: &day}}
		if Has("2.3") {
			Done(Must(admin.AlterTopicConfigs(ctx, change, topic))[0].Err)
		} else {
			Done(Must(admin.AlterTopicConfigsState(ctx, change, topic))[0].Err)
		}
		Equal(value(Must(admin.DescribeTopicConfigs(ctx, topic)), "retention.ms"), day)
	})
	Step("create partitions, describe log directories, list groups", func() {
		Done(Must(admin.CreatePartitions(ctx, 1, topic)).Error())
		Done(Must(admin.DescribeAllLogDirs(ctx, here))[1].Error())
		Equal(Must(admin.ListGroups(ctx))[group].ProtocolType, "consumer")
	})
	Step("list offsets by time", func() {
		Done(Must(admin.ListOffsetsAfterMilli(ctx, 0, topic)).Error())
		if Has("3.0") {
			Done(Must(admin.ListMaxTimestampOffsets(ctx, topic)).Error())
		}
	})
	if Has("2.4") {
		Step("list reassignments, elect leaders, delete an offset", func() {
			Equal(len(Must(admin.ListPartitionReassignments(ctx, here))), 0)
			elected := Must(admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, here))[topic][0]
			Equal(strings.Contains(elected.Err.Error(), "ELECTION_NOT_NEEDED"), true)
			Done(Must(admin.DeleteOffsets(ctx, "committed-"+topic, here)).Error())
		})
	}
	if Has("2.6") {
		Step("alter and describe quotas", func() {
			entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: &topic}}
			ops := []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1e6}}
			Must(admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: ops}}))
			filter := []kadm.DescribeClientQuotaComponent{{Type: "client-id", MatchName: &topic}}
			Equal(Must(admin.DescribeClientQuotas(ctx, true, filter))[0].Values[0].Value, 1e6)
		})
	}
	if Has("2.8") {
		Step("describe producers", func() {
			Equal(len(Must(admin.DescribeProducers(ctx, here))[topic].Partitions), 1)
		})
	}
	if Has("3.0") {
		Step("list and describe transactions", func() {
			Equal(Must(admin.ListTransactions(ctx, nil, nil))["txn-"+topic].State, "CompleteCommit")
			Equal(Must(admin.DescribeTransactions(ctx, "txn-"+topic))["txn-"+topic].State, "CompleteCommit")
		})
	}
}
