package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	brokerName = "broker-a"
	// A wait ends as soon as its condition holds, so it can exceed a machine's stalls and a lock's expiry.
	waitFor = 100 * time.Second
	// Longer than any stall: a request that times out is sent again, and then exists twice.
	requestFor = 60 * time.Second
	attempts   = 3
	// A pull waits for twenty seconds unless woken; RocketMQ checks after five by itself.
	atOnce = 10 * time.Second
	// Without a notification, a consumer checks after twenty seconds.
	soon        = 15 * time.Second
	atOneTime   = 32
	traceTopic  = "RMQ_SYS_TRACE_TOPIC"
	traceKey    = "k-traced-go"
	bigBodySize = 20_000
)

// tour is everything that a single client can do, in steps that check the results.
type tour struct {
	namesrv  string
	broker   string
	producer rocketmq.Producer
	admin    admin.Admin
	output   sync.Mutex
}

// steps runs the tour; each step is a line "step NAME: FACTS", without times, ports and ids in the facts.
func steps(namesrv, broker string) {
	t := &tour{namesrv: namesrv, broker: broker}
	t.producer = t.started("steps", producer.WithQueueSelector(t))
	made, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{namesrv})))
	check(err)
	t.admin = made
	all := []struct {
		name string
		run  func() (string, error)
	}{
		{"rebalance", inTime("rebalance", t.rebalance)},
		{"orderly", inTime("orderly", t.orderly)},
		{"broadcasting", t.broadcasting},
		{"message trace", t.messageTrace},
		{"first start, from the first", func() (string, error) { return t.firstStart("start-first", consumer.ConsumeFromFirstOffset) }},
		{"first start, from the last", func() (string, error) { return t.firstStart("start-last", consumer.ConsumeFromLastOffset) }},
		{"first start, from a time", func() (string, error) { return t.firstStart("start-time", consumer.ConsumeFromTimestamp) }},
		{"first start, from the last of a young queue", func() (string, error) { return t.firstStart("start-young", consumer.ConsumeFromLastOffset) }},
		{"long polling", inTime("long-polling", t.longPolling)},
		{"push by tags", t.pushByTags},
		{"push by SQL92", t.pushBySQL},
		{"single", t.single},
		{"batch", t.batch},
		{"oneway", t.oneway},
		{"asynchronous", t.asynchronous},
		{"ordered by queue", t.orderedByQueue},
		{"a write queue below 0", t.anyQueue},
		{"unique keys", t.uniqueKeys},
		{"compression", t.compression},
		{"topic creation by a client", t.topicCreation},
		{"automatic topic creation", t.automaticCreation},
		{"rejected topics", t.refusedTopics},
		{"a topic without write permission", t.readOnly},
		{"a topic without read permission", t.writeOnly},
		{"pull", t.pull},
		{"VIP port", t.vip},
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, atOneTime)
	for _, each := range all {
		each := each
		running.Add(1)
		go func() {
			defer running.Done()
			slots <- struct{}{}
			defer func() { <-slots }()
			start := time.Now()
			facts, err := each.run()
			fmt.Fprintln(os.Stderr, each.name, time.Since(start))
			if err != nil {
				facts = "broke off, " + err.Error()
			}
			t.output.Lock()
			defer t.output.Unlock()
			fmt.Printf("step %s: %s\n", each.name, facts)
		}()
	}
	running.Wait()
}

// Select returns the queue that the message names, or any.
func (t *tour) Select(one *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if one.Queue != nil {
		return one.Queue
	}
	return producer.NewHashQueueSelector().Select(one, queues, last)
}

func (t *tour) started(group string, options ...producer.Option) rocketmq.Producer {
	p, err := rocketmq.NewProducer(append(options,
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{t.namesrv})),
		producer.WithGroupName(group),
		producer.WithInstanceName(group),
		producer.WithRetry(0),
		producer.WithSendMsgTimeout(requestFor),
	)...)
	check(err)
	check(p.Start())
	return p
}

// topic creates a topic and returns its name once the name server has it.
func (t *tour) topic(name string, queues int) (string, error) {
	topic := name + "-go"
	var failure error
	err := until(func() bool {
		failure = t.admin.CreateTopic(
			context.Background(),
			admin.WithTopicCreate(topic),
			admin.WithBrokerAddrCreate(t.broker),
			admin.WithReadQueueNums(queues),
			admin.WithWriteQueueNums(queues),
		)
		return failure == nil
	})
	if err != nil {
		return "", failure
	}
	return topic, t.routed(topic, queues)
}

func (t *tour) routed(topic string, queues int) error {
	return until(func() bool {
		found, err := t.admin.FetchPublishMessageQueues(context.Background(), topic)
		return err == nil && len(found) == queues
	})
}

func made(topic, tag, key string) *primitive.Message {
	one := primitive.NewMessage(topic, []byte("body of "+key))
	one.WithProperty("mine", "x")
	one.Flag = 5
	return one.WithKeys([]string{key}).WithTag(tag)
}

func numbered(topic string, i int) *primitive.Message {
	one := made(topic, "A", fmt.Sprintf("k%d", i))
	one.WithProperty("number", fmt.Sprint(i))
	return one
}

func inQueue(one *primitive.Message, queueID int) *primitive.Message {
	one.Queue = &primitive.MessageQueue{Topic: one.Topic, BrokerName: brokerName, QueueId: queueID}
	return one
}

func (t *tour) sendSync(all ...*primitive.Message) (*primitive.SendResult, error) {
	return t.producer.SendSync(context.Background(), all...)
}

func until(holds func() bool) error {
	deadline := time.Now().Add(waitFor)
	for !holds() {
		if time.Now().After(deadline) {
			return errors.New("it did not come about")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// inTime returns a step's result. A late or failed step is repeated with a new name, because a machine may
// stall and releasing a lock has no answer. A real failure fails again.
func inTime(name string, take func(name string) (string, error)) func() (string, error) {
	return func() (string, error) {
		for attempt := 1; ; attempt++ {
			facts, err := take(fmt.Sprintf("%s%d", name, attempt))
			if attempt == attempts || err == nil && !strings.Contains(facts, "late") {
				return facts, err
			}
			fmt.Fprintln(os.Stderr, name, "is taken once more:", facts, err)
		}
	}
}

func status(result *primitive.SendResult) string {
	if result.Status == primitive.SendOK {
		return "SEND_OK"
	}
	return fmt.Sprintf("status %d", result.Status)
}

// outcome returns the status of a send, or its error.
func outcome(result *primitive.SendResult, err error) string {
	if err != nil {
		// Error messages differ between brokers.
		if code, _, found := strings.Cut(strings.TrimPrefix(err.Error(), "CODE: "), ", DESC"); found {
			return "refused " + code
		}
		return "refused: " + err.Error()
	}
	return status(result)
}

// received is a push consumer with its received messages.
type received struct {
	client     rocketmq.PushConsumer
	mutex      sync.Mutex
	keys       []string
	queues     map[int][]string
	deliveries int
	refuse     map[string]bool
}

func (t *tour) consumer(group, instance string, options ...consumer.Option) *received {
	c, err := rocketmq.NewPushConsumer(append([]consumer.Option{
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{t.namesrv})),
		consumer.WithGroupName(group + "-go"),
		consumer.WithInstance(instance),
		consumer.WithConsumeMessageBatchMaxSize(1),
	}, options...)...)
	check(err)
	return &received{client: c, queues: map[int][]string{}, refuse: map[string]bool{}}
}

func (r *received) start(topic string, selector consumer.MessageSelector) (*received, error) {
	err := r.client.Subscribe(topic, selector, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		for _, one := range messages {
			key := one.GetKeys()
			if r.refuse[key] {
				delete(r.refuse, key)
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			r.deliveries++
			r.queues[one.Queue.QueueId] = append(r.queues[one.Queue.QueueId], key)
			if !has(r.keys, key) {
				r.keys = append(r.keys, key)
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return r, err
	}
	return r, r.client.Start()
}

func (r *received) count() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.keys)
}

func (r *received) has(key string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return has(r.keys, key)
}

func (r *received) taken() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found := len(r.queues)
	r.queues = map[int][]string{}
	return found
}

func has(keys []string, key string) bool {
	for _, one := range keys {
		if one == key {
			return true
		}
	}
	return false
}

func shown(keys []string) string {
	return "[" + strings.Join(keys, ", ") + "]"
}

func sorted(keys []string) []string {
	found := append([]string{}, keys...)
	sort.Strings(found)
	return found
}

var everything = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}

// stored reads a topic's messages, one queue after the other, once there are enough.
func (t *tour) stored(topic string, queues, count int) ([]*primitive.MessageExt, error) {
	all := []*primitive.MessageQueue{}
	for queueID := 0; queueID < queues; queueID++ {
		all = append(all, &primitive.MessageQueue{Topic: topic, BrokerName: brokerName, QueueId: queueID})
	}
	return t.storedIn(topic, all, count)
}

func (t *tour) storedIn(topic string, queues []*primitive.MessageQueue, count int) ([]*primitive.MessageExt, error) {
	c, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{t.namesrv})),
		consumer.WithGroupName("reader-of-"+topic),
		consumer.WithInstance("reader-of-"+topic),
	)
	check(err)
	check(c.Subscribe(topic, everything))
	check(c.Start())
	defer func() { _ = c.Shutdown() }()
	var found []*primitive.MessageExt
	err = until(func() bool {
		found = nil
		// A pull at the end of a queue waits for twenty seconds.
		for _, queue := range queues {
			var offset int64
			for {
				result, err := c.PullFrom(context.Background(), queue, offset, 32)
				if err != nil || result.Status != primitive.PullFound {
					break
				}
				found = append(found, result.GetMessageExts()...)
				offset = result.NextBeginOffset
				if offset >= result.MaxOffset {
					break
				}
			}
		}
		return len(found) >= count
	})
	return found, err
}

func keysOf(messages []*primitive.MessageExt) []string {
	keys := []string{}
	for _, one := range messages {
		keys = append(keys, one.GetKeys())
	}
	return keys
}

// Producers.

func (t *tour) single() (string, error) {
	topic, err := t.topic("single", 1)
	if err != nil {
		return "", err
	}
	facts := []string{}
	for i := 0; i < 3; i++ {
		result, err := t.sendSync(inQueue(made(topic, "A", fmt.Sprintf("k%d", i)), 0))
		if err != nil {
			return "", err
		}
		facts = append(facts, fmt.Sprintf("%s at %d of queue %d %s", status(result), result.QueueOffset, result.MessageQueue.QueueId, result.RegionID))
	}
	found, err := t.stored(topic, 1, 3)
	if err != nil {
		return "", err
	}
	last := found[2]
	return fmt.Sprintf("%s, stored %s %s %s flag %d mine %s", shown(facts), last.GetKeys(), last.GetTags(), last.Body, last.Flag, last.GetProperty("mine")), nil
}

func (t *tour) batch() (string, error) {
	topic, err := t.topic("batch", 1)
	if err != nil {
		return "", err
	}
	all := []*primitive.Message{}
	for i := 0; i < 10; i++ {
		all = append(all, inQueue(numbered(topic, i), 0))
	}
	result, err := t.sendSync(all...)
	if err != nil {
		return "", err
	}
	found, err := t.stored(topic, 1, 10)
	if err != nil {
		return "", err
	}
	ids := strings.Split(result.OffsetMsgID, ",")
	return fmt.Sprintf("%s at %d, stored %s, %d ids", status(result), result.QueueOffset, shown(keysOf(found)), len(ids)), nil
}

func (t *tour) oneway() (string, error) {
	topic, err := t.topic("oneway", 1)
	if err != nil {
		return "", err
	}
	for i := 0; i < 5; i++ {
		if err := t.producer.SendOneWay(context.Background(), numbered(topic, i)); err != nil {
			return "", err
		}
	}
	last, err := t.sendSync(made(topic, "A", "last"))
	if err != nil {
		return "", err
	}
	found, err := t.stored(topic, 1, 6)
	return fmt.Sprintf("stored %s, the answered one %s", shown(sorted(keysOf(found))), status(last)), err
}

func (t *tour) asynchronous() (string, error) {
	topic, err := t.topic("asynchronous", 1)
	if err != nil {
		return "", err
	}
	var mutex sync.Mutex
	places := []int64{}
	for i := 0; i < 20; i++ {
		err := t.producer.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			if err == nil {
				places = append(places, result.QueueOffset)
			}
		}, numbered(topic, i))
		if err != nil {
			return "", err
		}
	}
	err = until(func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return len(places) == 20
	})
	sort.Slice(places, func(i, j int) bool { return places[i] < places[j] })
	return fmt.Sprintf("all answered, at %v", places), err
}

func (t *tour) orderedByQueue() (string, error) {
	topic, err := t.topic("ordered-by-queue", 3)
	if err != nil {
		return "", err
	}
	for i := 0; i < 12; i++ {
		one := numbered(topic, i)
		one.WithShardingKey(fmt.Sprintf("order-%d", i%3))
		if _, err := t.sendSync(one); err != nil {
			return "", err
		}
	}
	found, err := t.stored(topic, 3, 12)
	if err != nil {
		return "", err
	}
	orders := map[string][]string{}
	for _, one := range found {
		order := one.GetShardingKey()
		orders[order] = append(orders[order], fmt.Sprintf("%s of queue %d", one.GetKeys(), one.Queue.QueueId))
	}
	return fmt.Sprint(orders), nil
}

func (t *tour) anyQueue() (string, error) {
	topic, err := t.topic("any-queue", 2)
	if err != nil {
		return "", err
	}
	for i := 0; i < 40; i++ {
		if _, err := t.sendSync(inQueue(numbered(topic, i), -1)); err != nil {
			return "", err
		}
	}
	found, err := t.stored(topic, 2, 40)
	if err != nil {
		return "", err
	}
	queues := map[int]bool{}
	for _, one := range found {
		queues[one.Queue.QueueId] = true
	}
	return fmt.Sprintf("%d stored, in %d queues", len(found), len(queues)), nil
}

func (t *tour) uniqueKeys() (string, error) {
	topic, err := t.topic("unique-keys", 1)
	if err != nil {
		return "", err
	}
	result, err := t.sendSync(made(topic, "A", "k"))
	if err != nil {
		return "", err
	}
	found, err := t.stored(topic, 1, 1)
	if err != nil {
		return "", err
	}
	isSame := result.MsgID == found[0].GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex)
	return fmt.Sprintf("the answer's id is the stored key %t, and what a consumer shows %t", isSame, found[0].MsgId == result.MsgID), nil
}

func (t *tour) compression() (string, error) {
	topic, err := t.topic("compression", 1)
	if err != nil {
		return "", err
	}
	one := primitive.NewMessage(topic, []byte(strings.Repeat("x", bigBodySize)))
	if _, err := t.sendSync(one); err != nil {
		return "", err
	}
	found, err := t.stored(topic, 1, 1)
	if err != nil {
		return "", err
	}
	size := "as many"
	if found[0].StoreSize < 2_000 {
		size = "fewer"
	}
	return fmt.Sprintf("received %d bytes, stored %s, flags %d", len(found[0].Body), size, found[0].SysFlag), nil
}

func (t *tour) topicCreation() (string, error) {
	topic, err := t.topic("made-by-a-client", 3)
	if err != nil {
		return "", err
	}
	found, err := t.admin.FetchPublishMessageQueues(context.Background(), topic)
	if err != nil {
		return "", err
	}
	// If the broker registers another topic meanwhile, it may bring this one back.
	var failure error
	var list *admin.TopicList
	err = until(func() bool {
		failure = t.admin.DeleteTopic(context.Background(), admin.WithTopicDelete(topic), admin.WithBrokerAddrDelete(t.broker), admin.WithNameSrvAddr([]string{t.namesrv}))
		if failure == nil {
			list, failure = t.admin.FetchAllTopicList(context.Background())
		}
		return failure == nil && !has(list.TopicList, topic)
	})
	if failure != nil {
		return "", failure
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d queues to write, deleted %t", len(found), !has(list.TopicList, topic)), nil
}

func (t *tour) automaticCreation() (string, error) {
	result, err := t.sendSync(made("made-by-a-send-go", "A", "k"))
	if err != nil {
		return "", err
	}
	return status(result) + ", 4 queues", t.routed("made-by-a-send-go", 4)
}

func (t *tour) refusedTopics() (string, error) {
	facts := []string{}
	for _, each := range [][2]string{
		{"illegal", "with~tilde"}, {"long", strings.Repeat("x", 128)}, {"the broker's own", "SCHEDULE_TOPIC_XXXX"},
	} {
		result, err := t.sendSync(inQueue(made(each[1], "A", "k"), 0))
		facts = append(facts, each[0]+" "+outcome(result, err))
	}
	return shown(facts), nil
}

func (t *tour) readOnly() (string, error) {
	byRoute, err := t.sendSync(made("read-only", "A", "k"))
	found := outcome(byRoute, err)
	told, err := t.sendSync(inQueue(made("read-only", "A", "k"), 0))
	return "by the route " + found + ", to a queue of it " + outcome(told, err), nil
}

func (t *tour) writeOnly() (string, error) {
	if _, err := t.sendSync(inQueue(made("write-only", "A", "k"), 0)); err != nil {
		return "", err
	}
	c, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{t.namesrv})),
		consumer.WithGroupName("write-only-go"),
		consumer.WithInstance("write-only-go"),
	)
	check(err)
	check(c.Subscribe("read-only", everything))
	check(c.Start())
	defer func() { _ = c.Shutdown() }()
	queue := &primitive.MessageQueue{Topic: "write-only", BrokerName: brokerName}
	result, err := c.PullFrom(context.Background(), queue, 0, 1)
	if err != nil {
		return "a pull refused: " + strings.Split(err.Error(), ", remark")[0], nil
	}
	return fmt.Sprintf("a pull of %d messages", len(result.GetMessageExts())), nil
}

// Consumers.

func (t *tour) pull() (string, error) {
	topic, err := t.topic("pull", 1)
	if err != nil {
		return "", err
	}
	for i := 0; i < 10; i++ {
		if _, err := t.sendSync(numbered(topic, i)); err != nil {
			return "", err
		}
	}
	if _, err := t.stored(topic, 1, 10); err != nil {
		return "", err
	}
	c, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{t.namesrv})),
		consumer.WithGroupName("pull-go"),
		consumer.WithInstance("pull-go"),
	)
	check(err)
	check(c.Subscribe(topic, everything))
	check(c.Start())
	defer func() { _ = c.Shutdown() }()
	facts := []string{}
	queue := &primitive.MessageQueue{Topic: topic, BrokerName: brokerName}
	for _, offset := range []int64{2, 99} {
		result, err := c.PullFrom(context.Background(), queue, offset, 3)
		if err != nil {
			return "", err
		}
		facts = append(facts, fmt.Sprintf("status %d %s next %d of %d to %d", result.Status, shown(keysOf(result.GetMessageExts())), result.NextBeginOffset, result.MinOffset, result.MaxOffset))
	}
	return strings.Join(facts, "; "), nil
}

func (t *tour) pushByTags() (string, error) {
	topic, err := t.topic("by-tags", 2)
	if err != nil {
		return "", err
	}
	// "BB" and "Aa" have the same hash.
	for i, tag := range []string{"Aa", "BB", "C", "Aa", "D", "BB", "C"} {
		if _, err := t.sendSync(made(topic, tag, fmt.Sprintf("k%d-%s", i, tag))); err != nil {
			return "", err
		}
	}
	return t.selected(topic, "by-tags", consumer.MessageSelector{Type: consumer.TAG, Expression: "Aa || C"}, 4)
}

func (t *tour) pushBySQL() (string, error) {
	topic, err := t.topic("by-sql", 2)
	if err != nil {
		return "", err
	}
	for i := 0; i < 10; i++ {
		if _, err := t.sendSync(numbered(topic, i)); err != nil {
			return "", err
		}
	}
	expression := "number BETWEEN 3 AND 6 AND NOT (mine <> 'x') OR TAGS IN ('Z')"
	return t.selected(topic, "by-sql", consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}, 4)
}

func (t *tour) selected(topic, group string, selector consumer.MessageSelector, count int) (string, error) {
	c, err := t.consumer(group, group).start(topic, selector)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.client.Shutdown() }()
	if err := until(func() bool { return c.count() >= count }); err != nil {
		return "", err
	}
	time.Sleep(time.Second)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return fmt.Sprintf("received %s in %d deliveries", shown(sorted(c.keys)), c.deliveries), nil
}

func (t *tour) longPolling(name string) (string, error) {
	topic, err := t.topic(name, 1)
	if err != nil {
		return "", err
	}
	c, err := t.consumer(name, name).start(topic, everything)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.client.Shutdown() }()
	if _, err := t.sendSync(made(topic, "A", "first")); err != nil {
		return "", err
	}
	if err := until(func() bool { return c.has("first") }); err != nil {
		return "", err
	}
	time.Sleep(2 * time.Second)
	facts := []string{}
	for i := 0; i < 3; i++ {
		key := fmt.Sprintf("k%d", i)
		start := time.Now()
		if _, err := t.sendSync(made(topic, "A", key)); err != nil {
			return "", err
		}
		if err := until(func() bool { return c.has(key) }); err != nil {
			return "", err
		}
		facts = append(facts, key+word(time.Since(start) < atOnce, " at once", " late"))
	}
	return shown(facts), nil
}

func word(holds bool, yes, no string) string {
	if holds {
		return yes
	}
	return no
}

func (t *tour) firstStart(name string, where consumer.ConsumeFromWhere) (string, error) {
	topic := name + "go"
	if _, err := t.sendSync(made(topic, "A", "old")); err != nil {
		return "", err
	}
	time.Sleep(4 * time.Second)
	if _, err := t.sendSync(made(topic, "A", "young")); err != nil {
		return "", err
	}
	routed, err := t.admin.FetchPublishMessageQueues(context.Background(), topic)
	if err != nil {
		return "", err
	}
	stored, err := t.storedIn(topic, routed, 2)
	if err != nil {
		return "", err
	}
	// Consumers use whole seconds; RocketMQ begins at the nearest message.
	start := time.UnixMilli(stored[1].StoreTimestamp - 500)
	c, err := t.consumer(
		name, name, consumer.WithConsumeFromWhere(where), consumer.WithConsumeTimestamp(start.Format("20060102150405")),
	).start(topic, everything)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.client.Shutdown() }()
	// A consumer doesn't announce that it has its starting offset; earlier messages don't arrive.
	var failure error
	err = until(func() bool {
		time.Sleep(4 * time.Second)
		if c.has("new") || failure != nil {
			return true
		}
		_, failure = t.sendSync(made(topic, "A", "new"))
		return false
	})
	if failure != nil {
		return "", failure
	}
	// Each is consumed separately, so the last may finish before the first.
	time.Sleep(time.Second)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return "received " + shown(sorted(c.keys)), err
}

func (t *tour) orderly(name string) (string, error) {
	topic, err := t.topic(name, 3)
	if err != nil {
		return "", err
	}
	for i := 0; i < 15; i++ {
		if _, err := t.sendSync(inQueue(numbered(topic, i), i%3)); err != nil {
			return "", err
		}
	}
	first := t.consumer(name, name+"-1", consumer.WithConsumerOrder(true))
	first.refuse["k6"] = true
	if _, err := first.start(topic, everything); err != nil {
		return "", err
	}
	if err := until(func() bool { return first.count() == 15 }); err != nil {
		return "", err
	}
	if err := first.client.Shutdown(); err != nil {
		return "", err
	}
	for i := 15; i < 18; i++ {
		if _, err := t.sendSync(inQueue(numbered(topic, i), i%3)); err != nil {
			return "", err
		}
	}
	start := time.Now()
	second, err := t.consumer(name, name+"-2", consumer.WithConsumerOrder(true)).start(topic, everything)
	if err != nil {
		return "", err
	}
	defer func() { _ = second.client.Shutdown() }()
	err = until(func() bool { return second.has("k15") && second.has("k16") && second.has("k17") })
	first.mutex.Lock()
	defer first.mutex.Unlock()
	// A lock that wasn't released expires after a minute.
	return fmt.Sprintf("%v, refused once, taken over%s", first.queues, word(time.Since(start) < 35*time.Second, " soon", " late")), err
}

func (t *tour) broadcasting() (string, error) {
	topic, err := t.topic("broadcasting", 2)
	if err != nil {
		return "", err
	}
	consumers := []*received{}
	for i := 0; i < 2; i++ {
		c, err := t.consumer(
			"broadcasting", fmt.Sprintf("broadcasting-%d", i), consumer.WithConsumerModel(consumer.BroadCasting),
		).start(topic, everything)
		if err != nil {
			return "", err
		}
		defer func() { _ = c.client.Shutdown() }()
		consumers = append(consumers, c)
	}
	for i := 0; i < 10; i++ {
		if _, err := t.sendSync(inQueue(numbered(topic, i), i%2)); err != nil {
			return "", err
		}
	}
	facts := []string{}
	for _, c := range consumers {
		if err := until(func() bool { return c.count() >= 10 }); err != nil {
			return "", err
		}
		facts = append(facts, fmt.Sprintf("%d messages of %d queues", c.count(), c.taken()))
	}
	return shown(facts), nil
}

// round sends a message to each queue and returns how many each consumer received.
func (t *tour) round(topic string, number int, consumers ...*received) ([]int, error) {
	for _, c := range consumers {
		c.taken()
	}
	for queueID := 0; queueID < 4; queueID++ {
		if _, err := t.sendSync(inQueue(made(topic, "A", fmt.Sprintf("k%d-%d", number, queueID)), queueID)); err != nil {
			return nil, err
		}
	}
	time.Sleep(500 * time.Millisecond)
	counts := []int{}
	for _, c := range consumers {
		counts = append(counts, c.taken())
	}
	return counts, nil
}

// shared repeats rounds until the consumers have the wanted numbers of queues.
func (t *tour) shared(topic string, from int, wanted string, consumers ...*received) (string, error) {
	number := from
	var failure error
	start := time.Now()
	err := until(func() bool {
		number++
		counts, err := t.round(topic, number, consumers...)
		failure = err
		return err != nil || fmt.Sprint(counts) == wanted
	})
	if failure != nil {
		err = failure
	}
	return wanted + word(time.Since(start) < soon, " soon", " late"), err
}

func (t *tour) rebalance(name string) (string, error) {
	topic, err := t.topic(name, 4)
	if err != nil {
		return "", err
	}
	first, err := t.consumer(name, name+"-1").start(topic, everything)
	if err != nil {
		return "", err
	}
	defer func() { _ = first.client.Shutdown() }()
	if _, err := t.shared(topic, 0, "[4]", first); err != nil {
		return "", err
	}
	second, err := t.consumer(name, name+"-2").start(topic, everything)
	if err != nil {
		return "", err
	}
	two, err := t.shared(topic, 100, "[2 2]", first, second)
	if err != nil {
		return "", err
	}
	if err := second.client.Shutdown(); err != nil {
		return "", err
	}
	again, err := t.shared(topic, 200, "[4]", first)
	return fmt.Sprintf("alone [4]; two %s; alone again %s", two, again), err
}

func (t *tour) messageTrace() (string, error) {
	topic, err := t.topic("traced", 1)
	if err != nil {
		return "", err
	}
	trace := &primitive.TraceConfig{
		TraceTopic: traceTopic, GroupName: "traced-go", Access: primitive.Local,
		Resolver: primitive.NewPassthroughResolver([]string{t.namesrv}),
	}
	p := t.started("traced-producer-go", producer.WithTrace(trace))
	defer func() { _ = p.Shutdown() }()
	if _, err := p.SendSync(context.Background(), made(topic, "A", traceKey)); err != nil {
		return "", err
	}
	c, err := t.consumer("traced", "traced", consumer.WithTrace(trace)).start(topic, everything)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.client.Shutdown() }()
	if err := until(func() bool { return c.has(traceKey) }); err != nil {
		return "", err
	}
	kinds := map[string]bool{}
	err = until(func() bool {
		found, err := t.stored(traceTopic, 1, 1)
		if err != nil {
			return false
		}
		for _, one := range found {
			for _, record := range strings.Split(string(one.Body), "\u0002") {
				if strings.Contains(record, traceKey) {
					kinds[strings.Split(record, "\u0001")[0]] = true
				}
			}
		}
		return len(kinds) >= 3
	})
	names := []string{}
	for kind := range kinds {
		names = append(names, kind)
	}
	return "kinds " + shown(sorted(names)), err
}

// Ways to connect.

func (t *tour) vip() (string, error) {
	topic, err := t.topic("vip", 1)
	if err != nil {
		return "", err
	}
	p := t.started("steps-vip", producer.WithVIPChannel(true))
	defer func() { _ = p.Shutdown() }()
	result, err := p.SendSync(context.Background(), made(topic, "A", "k"))
	if err != nil {
		return "", err
	}
	c, err := t.consumer("vip", "vip", consumer.WithVIPChannel(true)).start(topic, everything)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.client.Shutdown() }()
	err = until(func() bool { return c.has("k") })
	return "sent " + status(result) + ", received " + shown(c.keys), err
}

// live is a push consumer that runs until the end of standard input; it prints "received KEY" for each delivery.
func live(namesrv, topic, group string) {
	t := &tour{namesrv: namesrv}
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{t.namesrv})),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	check(c.Subscribe(topic, everything, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		t.output.Lock()
		defer t.output.Unlock()
		for _, one := range messages {
			fmt.Println("received", one.GetKeys())
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(c.Start())
	_, _ = io.ReadAll(os.Stdin)
	check(c.Shutdown())
}

// signed sends a message with an account, and prints "send OK" or the error.
func signed(namesrv, topic, accessKey, secretKey string) {
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		producer.WithGroupName("signed-go"),
		producer.WithRetry(0),
		producer.WithCredentials(primitive.Credentials{AccessKey: accessKey, SecretKey: secretKey}),
	)
	check(err)
	check(p.Start())
	result, err := p.SendSync(context.Background(), made(topic, "A", "k"))
	fmt.Println("send", outcome(result, err))
	check(p.Shutdown())
}
