"""Share groups: who may be a member, see a description, and see, set and delete offsets; of topics, those that may be seen or read."""

from __future__ import annotations

from ottla.broker.authorization.group_topics import guard_member, hiding
from ottla.broker.authorization.guard import HandlerOf
from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.share_group_describe import (
    DescribedGroup,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.server.authorization.operations import DELETE, DESCRIBE, GROUP, READ, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, then

REJECTED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def guard_heartbeat(
    broker: BrokerComponents, handler: HandlerOf[ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse]
) -> HandlerOf[ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse]:
    return guard_member(broker, handler, lambda request: request.subscribed_topic_names or ())


def _topics(group: DescribedGroup) -> set[str]:
    return {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}


without_hidden_topics = hiding(DescribedGroup, _topics)


def guard_describe_offsets(
    broker: BrokerComponents, handler: HandlerOf[DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse]
) -> HandlerOf[DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse]:
    allows = broker.authorizer.allows

    def describe(
        request: DescribeShareGroupOffsetsRequest, context: RequestContext
    ) -> Answer[DescribeShareGroupOffsetsResponse]:
        denied = [group for group in request.groups if not allows(context, DESCRIBE, GROUP, group.group_id)]
        request.groups = [group for group in request.groups if allows(context, DESCRIBE, GROUP, group.group_id)]
        rejected = {group.group_id: _take_out(broker, context, group) for group in request.groups}

        def merge(answer: DescribeShareGroupOffsetsResponse) -> DescribeShareGroupOffsetsResponse:
            for group in answer.groups:
                if not group.error_code:
                    group.topics = [t for t in group.topics if allows(context, DESCRIBE, TOPIC, t.topic_name)]
                    group.topics += rejected[group.group_id]
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
            answer.groups += [
                DescribeShareGroupOffsetsResponseGroup(
                    group_id=group.group_id, error_code=error, error_message=error.message
                )
                for group in denied
            ]
            return answer

        return then(handler(request, context), merge)

    return describe


def _take_out(
    broker: BrokerComponents, context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    if group.topics is None:
        return []
    allows = broker.authorizer.allows
    rejected = [topic for topic in group.topics if not allows(context, DESCRIBE, TOPIC, topic.topic_name)]
    group.topics = [topic for topic in group.topics if allows(context, DESCRIBE, TOPIC, topic.topic_name)]
    return [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            partitions=[
                DescribeShareGroupOffsetsResponsePartition(i, error_code=REJECTED, error_message=REJECTED.message)
                for i in topic.partitions
            ],
        )
        for topic in rejected
    ]


def guard_alter_offsets(
    broker: BrokerComponents, handler: HandlerOf[AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse]
) -> HandlerOf[AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse]:
    allows = broker.authorizer.allows

    def alter(
        request: AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> Answer[AlterShareGroupOffsetsResponse]:
        if not allows(context, READ, GROUP, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        rejected = [
            AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                partitions=[
                    AlterShareGroupOffsetsResponsePartition(row.partition_index, REJECTED, REJECTED.message)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
            if not allows(context, READ, TOPIC, topic.topic_name)
        ]
        request.topics = [topic for topic in request.topics if allows(context, READ, TOPIC, topic.topic_name)]

        def merge(answer: AlterShareGroupOffsetsResponse) -> AlterShareGroupOffsetsResponse:
            if not answer.error_code:
                answer.responses = [*answer.responses, *rejected]
            return answer

        return then(handler(request, context), merge)

    return alter


def guard_delete_offsets(
    broker: BrokerComponents, handler: HandlerOf[DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse]
) -> HandlerOf[DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse]:
    allows = broker.authorizer.allows

    def delete(
        request: DeleteShareGroupOffsetsRequest, context: RequestContext
    ) -> Answer[DeleteShareGroupOffsetsResponse]:
        if not allows(context, DELETE, GROUP, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        rejected = [
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, error_code=REJECTED, error_message=REJECTED.message
            )
            for topic in request.topics
            if not allows(context, READ, TOPIC, topic.topic_name)
        ]
        request.topics = [topic for topic in request.topics if allows(context, READ, TOPIC, topic.topic_name)]

        def merge(answer: DeleteShareGroupOffsetsResponse) -> DeleteShareGroupOffsetsResponse:
            if not answer.error_code:
                answer.responses = [*answer.responses, *rejected]
            return answer

        return then(handler(request, context), merge)

    return delete
