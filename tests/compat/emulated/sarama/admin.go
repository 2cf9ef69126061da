package main

import (
	"github.com/IBM/sarama"

	. "emulated/steps"
)

// value returns a configuration's value, or ends the step.
func value(admin sarama.ClusterAdmin, kind sarama.ConfigResourceType, of, name string) string {
	for _, each := range Must(admin.DescribeConfig(sarama.ConfigResource{Type: kind, Name: of})) {
		if each.Name == name {
			return each.Value
		}
	}
	panic("no " + name)
}

// administer describes and changes the topic and the cluster by what the release has.
func administer(admin sarama.ClusterAdmin) {
	Step("describe the cluster and its groups", func() {
		nodes, controller, err := admin.DescribeCluster()
		Done(err)
		Equal(nodes[0].ID(), controller)
		Equal(Must(admin.ListConsumerGroups())[group], "consumer")
	})
	if Has("0.11") {
		week, day := "604800000", "86400000"
		Step("describe and alter configurations", func() {
			Equal(value(admin, sarama.BrokerResource, "1", "log.retention.hours"), "168")
			Equal(value(admin, sarama.TopicResource, topic, "retention.ms"), week)
			Done(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &day}, false))
			Equal(value(admin, sarama.TopicResource, topic, "retention.ms"), day)
		})
		if Has("2.3") {
			Step("alter configurations one by one", func() {
				set := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &week}
				change := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": set}
				Done(admin.IncrementalAlterConfig(sarama.TopicResource, topic, change, false))
				Equal(value(admin, sarama.TopicResource, topic, "retention.ms"), week)
			})
		}
	}
	if Has("1.0") {
		Step("create partitions, and describe log directories", func() {
			Done(admin.CreatePartitions(topic, 2, nil, false))
			Equal(len(Must(admin.DescribeLogDirs([]int32{1}))[1]), 1)
		})
	}
	if Has("2.4") {
		Step("list reassignments, elect leaders, delete an offset", func() {
			Equal(len(Must(admin.ListPartitionReassignments(topic, []int32{0}))), 0)
			Equal(Must(admin.ElectLeaders(sarama.PreferredElection, ours))[topic][0].ErrorCode, sarama.ErrElectionNotNeeded)
			Done(admin.DeleteConsumerGroupOffset("committed-"+topic, topic, 0))
		})
	}
	if Has("2.6") {
		Step("alter and describe quotas", func() {
			entity := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Name: topic}}
			Done(admin.AlterClientQuotas(entity, sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1e6}, false))
			filter := []sarama.QuotaFilterComponent{{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Match: topic}}
			Equal(Must(admin.DescribeClientQuotas(filter, true))[0].Values["producer_byte_rate"], 1e6)
		})
	}
}
