// Programs based on Apache RocketMQ's Go client:
//
//	interop send NAMESRV TOPIC GROUP COUNT PREFIX
//	interop receive NAMESRV TOPIC GROUP EXPRESSION COUNT QUIET_MS SECONDS
//	interop pull NAMESRV TOPIC GROUP BROKER QUEUE_ID OFFSET COUNT
//	interop delay NAMESRV TOPIC GROUP COUNT LEVEL
//	interop transact NAMESRV TOPIC GROUP COUNT SECONDS
//	interop consume NAMESRV TOPIC GROUP FAILURES COUNT QUIET_MS SECONDS
//	interop request NAMESRV TOPIC GROUP COUNT TIMEOUT_MS
//	interop steps NAMESRV BROKER_ADDRESS
//	interop live NAMESRV TOPIC GROUP
//	interop signed NAMESRV TOPIC ACCESS_KEY SECRET_KEY
//	interop through NAMESRV TOPIC GROUP
//	interop record NAMESRV TOPIC GROUP HISTORY SEED SECONDS DELAY_MS
//
// "send" sends COUNT single messages, COUNT in one batch and COUNT oneway, and prints "sent KEY" for each,
// "sent KEY QUEUE_ID QUEUE_OFFSET" for answered ones. "receive" prints "received KEY TAG QUEUE_ID
// QUEUE_OFFSET BODY" until COUNT messages arrived and then none for QUIET_MS.
// "pull" reads COUNT messages from an offset, prints "pulled KEY QUEUE_OFFSET" for each, then the queue's
// first, end and next offset, and stores the next offset as the group's.
// "delay" sends COUNT messages with a delay level, "transact" COUNT half messages, of which the first, fourth …
// are committed, the second, fifth … rolled back, and the others committed when the broker checks them; it waits
// SECONDS for checks, and prints "sent KEY" and "asked KEY". "consume" fails each message FAILURES times and
// prints "consumed KEY RECONSUME_TIMES MS_FROM_BORN_TO_STORED" for each delivery.
// "request" sends COUNT requests and waits for each reply, COUNT with a callback, then one of each kind without
// a reply. It prints "answered KEY STATUS" or "refused KEY REASON" as the replier, "replied KEY BODY" for each
// reply, "timeout KEY MS" for a request that timed out, and "called KEY TIMES" for each callback.
// "through" prints "sent KEY STATUS", "failed KEY" and "received KEY".
// "record" records its operations in a file, for tools/faults/checker.py.
// "steps", "live" and "signed" are in steps.go.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func message(topic, prefix, mode string, i int) *primitive.Message {
	key := fmt.Sprintf("%s-%s-%d", prefix, mode, i)
	made := primitive.NewMessage(topic, []byte("body of "+key))
	return made.WithKeys([]string{key}).WithTag(string("ABC"[i%3]))
}

func send(namesrv, topic, group string, count int, prefix string) {
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		producer.WithGroupName(group),
		producer.WithRetry(2),
	)
	check(err)
	check(p.Start())
	for i := 0; i < count; i++ {
		one := message(topic, prefix, "sync", i)
		result, err := p.SendSync(context.Background(), one)
		check(err)
		if result.Status != primitive.SendOK {
			check(fmt.Errorf("refused: %s", result))
		}
		fmt.Println("sent", one.GetKeys(), result.MessageQueue.QueueId, result.QueueOffset)
	}
	batch := []*primitive.Message{}
	for i := 0; i < count; i++ {
		batch = append(batch, message(topic, prefix, "batch", i))
	}
	result, err := p.SendSync(context.Background(), batch...)
	check(err)
	if result.Status != primitive.SendOK {
		check(fmt.Errorf("refused: %s", result))
	}
	for i := 0; i < count; i++ {
		fmt.Println("sent", batch[i].GetKeys())
	}
	for i := 0; i < count; i++ {
		one := message(topic, prefix, "oneway", i)
		check(p.SendOneWay(context.Background(), one))
		fmt.Println("sent", one.GetKeys())
	}
	// This answered send follows the oneway ones on the same connection.
	_, err = p.SendSync(context.Background(), message(topic, prefix, "last", 0))
	check(err)
	fmt.Println("sent", prefix+"-last-0")
	check(p.Shutdown())
}

func receive(namesrv, topic, group, expression string, count int, quiet, limit time.Duration) {
	var mutex sync.Mutex
	seen := 0
	last := time.Now()
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerModel(consumer.Clustering),
	)
	check(err)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
	check(c.Subscribe(topic, selector, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		mutex.Lock()
		defer mutex.Unlock()
		for _, one := range messages {
			body := strings.ReplaceAll(string(one.Body), "body of ", "")
			fmt.Println("received", one.GetKeys(), one.GetTags(), one.Queue.QueueId, one.QueueOffset, body)
		}
		seen += len(messages)
		last = time.Now()
		return consumer.ConsumeSuccess, nil
	}))
	check(c.Start())
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
		mutex.Lock()
		isOver := seen >= count && time.Since(last) > quiet
		mutex.Unlock()
		if isOver {
			break
		}
	}
	check(c.Shutdown())
}

func pull(namesrv, topic, group, broker string, queueID, offset, count int) {
	c, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		consumer.WithGroupName(group),
	)
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
	check(c.Start())
	queue := &primitive.MessageQueue{Topic: topic, BrokerName: broker, QueueId: queueID}
	result, err := c.PullFrom(context.Background(), queue, int64(offset), count)
	check(err)
	for _, one := range result.GetMessageExts() {
		fmt.Println("pulled", one.GetKeys(), one.QueueOffset)
	}
	fmt.Println("next", result.NextBeginOffset, "min", result.MinOffset, "max", result.MaxOffset)
	// Only offsets of the consumer's own queues are stored. It gets its share of the queues when it starts,
	// or after twenty seconds if that was too early.
	for second := 0; second < 25; second++ {
		check(c.UpdateOffset(queue, result.NextBeginOffset))
		check(c.PersistOffset(context.Background(), topic))
		time.Sleep(time.Second)
	}
	current, err := c.CurrentOffset(queue)
	check(err)
	fmt.Println("current", current)
	check(c.Shutdown())
}

func delay(namesrv, topic, group string, count, level int) {
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		producer.WithGroupName(group),
	)
	check(err)
	check(p.Start())
	for i := 0; i < count; i++ {
		one := message(topic, "go", "delay", i).WithDelayTimeLevel(level)
		_, err := p.SendSync(context.Background(), one)
		check(err)
		fmt.Println("sent", one.GetKeys())
	}
	check(p.Shutdown())
}

// outcomes returns the outcome of a half message, by the number at the end of its key.
type outcomes struct {
	asked *sync.Map
}

func (outcomes) ExecuteLocalTransaction(one *primitive.Message) primitive.LocalTransactionState {
	parts := strings.Split(one.GetKeys(), "-")
	switch number(parts[len(parts)-1]) % 3 {
	case 0:
		return primitive.CommitMessageState
	case 1:
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (o outcomes) CheckLocalTransaction(one *primitive.MessageExt) primitive.LocalTransactionState {
	fmt.Println("asked", one.GetKeys())
	o.asked.Store(one.GetKeys(), true)
	return primitive.CommitMessageState
}

// transact runs until the broker has checked each undecided message, or for a maximum time.
func transact(namesrv, topic, group string, count int, stay time.Duration) {
	asked := &sync.Map{}
	p, err := rocketmq.NewTransactionProducer(
		outcomes{asked},
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		producer.WithGroupName(group),
	)
	check(err)
	check(p.Start())
	for i := 0; i < count; i++ {
		one := message(topic, "go", "half", i)
		_, err := p.SendMessageInTransaction(context.Background(), one)
		check(err)
		fmt.Println("sent", one.GetKeys())
	}
	for deadline := time.Now().Add(stay); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		known := 0
		asked.Range(func(_, _ any) bool {
			known++
			return true
		})
		if known >= count/3 {
			break
		}
	}
	// Outcomes are sent oneway.
	time.Sleep(time.Second)
	check(p.Shutdown())
}

func consume(namesrv, topic, group string, failures, count int, quiet, limit time.Duration) {
	var mutex sync.Mutex
	seen := 0
	last := time.Now()
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(1),
	)
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{}, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		mutex.Lock()
		defer mutex.Unlock()
		for _, one := range messages {
			fmt.Println("consumed", one.GetKeys(), one.ReconsumeTimes, one.StoreTimestamp-one.BornTimestamp)
			seen++
			last = time.Now()
			if int(one.ReconsumeTimes) < failures {
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(c.Start())
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
		mutex.Lock()
		isOver := seen >= count && time.Since(last) > quiet
		mutex.Unlock()
		if isOver {
			break
		}
	}
	check(c.Shutdown())
}

// silent ends the key of a request that must not be replied to.
const silent = "-silent"

// answer starts the replier to a topic's requests; calling the result stops it.
func answer(namesrv, topic, group string) func() {
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		producer.WithGroupName(group+"-answering"),
		producer.WithInstanceName("answering"),
	)
	check(err)
	check(p.Start())
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		consumer.WithGroupName(group),
		consumer.WithInstance("answering"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{}, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, one := range messages {
			if strings.HasSuffix(one.GetKeys(), silent) {
				continue
			}
			// The library treats this body as properties, and sends none.
			reply, err := consumer.CreateReplyMessage(one, nil)
			check(err)
			reply.Body = []byte("reply-to-" + one.GetKeys())
			result, err := p.SendSync(context.Background(), reply)
			// A client that subscribes to an existing topic sends its first heartbeat a second after its start.
			for err != nil && strings.Contains(err.Error(), "not found") {
				fmt.Println("refused", one.GetKeys(), err)
				time.Sleep(100 * time.Millisecond)
				result, err = p.SendSync(context.Background(), reply)
			}
			check(err)
			fmt.Println("answered", one.GetKeys(), result.Status)
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(c.Start())
	return func() {
		check(c.Shutdown())
		check(p.Shutdown())
	}
}

func request(namesrv, topic, group string, count int, timeout time.Duration) {
	stop := answer(namesrv, topic, group)
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		producer.WithGroupName(group+"-asking"),
		producer.WithInstanceName("asking"),
	)
	check(err)
	check(p.Start())
	question := func(key string) *primitive.Message {
		return primitive.NewMessage(topic, []byte("body of "+key)).WithKeys([]string{key})
	}
	wait := func(key string, limit time.Duration) {
		began := time.Now()
		reply, err := p.Request(context.Background(), limit, question(key))
		if err != nil {
			fmt.Println("timeout", key, time.Since(began).Milliseconds())
			return
		}
		fmt.Println("replied", key, string(reply.Body))
	}
	for i := 0; i < count; i++ {
		wait(fmt.Sprintf("sync-%d", i), timeout)
	}
	var mutex sync.Mutex
	called := map[string]int{}
	call := func(key string, limit time.Duration) {
		check(p.RequestAsync(context.Background(), limit, func(
			_ context.Context, reply *primitive.Message, err error,
		) {
			mutex.Lock()
			defer mutex.Unlock()
			called[key]++
			if called[key] > 1 {
				return
			}
			if err != nil {
				fmt.Println("timeout", key, limit.Milliseconds())
				return
			}
			fmt.Println("replied", key, string(reply.Body))
		}, question(key)))
	}
	for i := 0; i < count; i++ {
		call(fmt.Sprintf("async-%d", i), timeout)
	}
	call("async"+silent, time.Second)
	wait("sync"+silent, time.Second)
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		mutex.Lock()
		twice := 0
		for _, times := range called {
			if times >= 2 {
				twice++
			}
		}
		isOver := twice >= count
		mutex.Unlock()
		if isOver {
			break
		}
	}
	time.Sleep(500 * time.Millisecond)
	mutex.Lock()
	for key, times := range called {
		fmt.Println("called", key, times)
	}
	mutex.Unlock()
	check(p.Shutdown())
	stop()
}

func main() {
	rlog.SetLogLevel("error")
	given := os.Args[1:]
	switch given[0] {
	case "send":
		send(given[1], given[2], given[3], number(given[4]), given[5])
	case "receive":
		quiet := time.Duration(number(given[6])) * time.Millisecond
		receive(given[1], given[2], given[3], given[4], number(given[5]), quiet, time.Duration(number(given[7]))*time.Second)
	case "delay":
		delay(given[1], given[2], given[3], number(given[4]), number(given[5]))
	case "transact":
		transact(given[1], given[2], given[3], number(given[4]), time.Duration(number(given[5]))*time.Second)
	case "consume":
		quiet := time.Duration(number(given[6])) * time.Millisecond
		limit := time.Duration(number(given[7])) * time.Second
		consume(given[1], given[2], given[3], number(given[4]), number(given[5]), quiet, limit)
	case "request":
		timeout := time.Duration(number(given[5])) * time.Millisecond
		request(given[1], given[2], given[3], number(given[4]), timeout)
	case "steps":
		steps(given[1], given[2])
	case "live":
		live(given[1], given[2], given[3])
	case "signed":
		signed(given[1], given[2], given[3], given[4])
	case "through":
		through(given[1], given[2], given[3])
	case "record":
		duration, delay := time.Duration(number(given[6]))*time.Second, time.Duration(number(given[7]))*time.Millisecond
		pause := time.Duration(number(given[8])) * time.Millisecond
		record(given[1], given[2], given[3], given[4], number(given[5]), duration, delay, pause)
	case "pull":
		pull(given[1], given[2], given[3], given[4], number(given[5]), number(given[6]), number(given[7]))
	}
}
