// @platformatic/kafka: the admin client, a producer, and a consumer of both group protocols.
import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { Admin, Consumer, MessagesStreamModes, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const bootstrapBrokers = process.argv[2].split(',')
const run = randomUUID().slice(0, 8)
const topic = `platformatic-${run}`
let failed = 0

async function check (name, work) {
  try {
    await work()
    console.log(`PASS ${name}`)
  } catch (error) {
    failed = 1
    console.log(`FAIL ${name}: ${error.message}`)
  }
}

function equal (found, wanted) {
  if (!isDeepStrictEqual(found, wanted)) throw new Error(`found ${JSON.stringify(found)}, wanted ${JSON.stringify(wanted)}`)
}

const wanted = Array.from({ length: 10 }, (_, number) => String(number))

await check('create a topic', async () => {
  const admin = new Admin({ clientId: 'admin', bootstrapBrokers })
  await admin.createTopics({ topics: [topic], partitions: 1, replicas: 1 })
  equal((await admin.listTopics()).includes(topic), true)
  await admin.close()
})
await check('produce with keys and headers', async () => {
  const producer = new Producer({ clientId: 'producer', bootstrapBrokers, serializers: stringSerializers })
  await producer.send({ messages: wanted.map(value => ({ topic, key: 'k', value, headers: { h: '1' } })) })
  await producer.close()
})
for (const groupProtocol of ['classic', 'consumer']) {
  await check(`a group by the protocol ${groupProtocol}`, async () => {
    const consumer = new Consumer({
      groupId: `${groupProtocol}-${run}`, clientId: 'consumer', bootstrapBrokers, groupProtocol,
      deserializers: stringDeserializers, timeout: 10000
    })
    const stream = await consumer.consume({ topics: [topic], mode: MessagesStreamModes.EARLIEST, autocommit: true })
    const values = []
    const timer = setTimeout(() => stream.destroy(new Error(`read ${values.length} records`)), 40000)
    for await (const message of stream) {
      values.push(message.value)
      if (values.length === wanted.length) break
    }
    clearTimeout(timer)
    await consumer.close(true)
    equal(values, wanted)
  })
}
process.exit(failed)
