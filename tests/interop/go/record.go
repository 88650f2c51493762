package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	clockMonotonic  = 1
	recordedBodyMax = 700
	tries           = 3
	// Sends that waited for a failed flush are answered with 14, and may be stored.
	notAvailable = "CODE: 14,"
)

type line map[string]any

// recorder records a client's operations: the records of tools/faults/operations.py, one a line.
type recorder struct {
	mutex       sync.Mutex
	history     *os.File
	topic       string
	group       string
	name        string
	delay       time.Duration
	pause       time.Duration
	shares      map[string]string
	sessions    int
	redelivered int
}

// monotonic is the clock of all histories of a machine.
func monotonic() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

func numberOf(id string) int {
	return number(id[strings.LastIndex(id, "-")+1:])
}

func (r *recorder) write(kind string, words line) {
	words["type"] = kind
	text, err := json.Marshal(words)
	check(err)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	_, err = r.history.Write(append(text, '\n'))
	check(err)
}

// end decides a transaction by its id, with the same outcome each time.
func (r *recorder) end(id string) primitive.LocalTransactionState {
	outcome, state := "commit", primitive.CommitMessageState
	if numberOf(id)%30 == 13 {
		outcome, state = "rollback", primitive.RollbackMessageState
	}
	r.write("ended", line{"id": id, "outcome": outcome, "invoked": monotonic()})
	return state
}

// ExecuteLocalTransaction is called once a half message is stored. It leaves some undecided, for the broker to check.
func (r *recorder) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	if numberOf(message.GetKeys())%150 == 23 {
		return primitive.UnknowState
	}
	return r.end(message.GetKeys())
}

// CheckLocalTransaction is called when a broker checks a transaction.
func (r *recorder) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	return r.end(message.GetKeys())
}

// sendInTransaction sends a half message, and records its outcome.
func sendInTransaction(t rocketmq.TransactionProducer, one *primitive.Message) (*primitive.SendResult, error) {
	result, err := t.SendMessageInTransaction(context.Background(), one)
	if err != nil {
		return nil, err
	}
	return result.SendResult, nil
}

// send sends one message until it is answered; each attempt has two records: before its bytes leave, and with its answer.
func (r *recorder) send(p rocketmq.Producer, t rocketmq.TransactionProducer, number, size int) {
	id := fmt.Sprintf("%s-%d", r.name, number)
	body := []byte(id)
	if size > len(body) {
		body = append(body, bytes.Repeat([]byte("."), size-len(body))...)
	}
	words := line{
		"client": r.name, "id": id, "digest": digest(body), "topic": r.topic, "queue_id": 0, "kind": "plain",
	}
	for i := 0; i < tries; i++ {
		one := primitive.NewMessage(r.topic, body).WithKeys([]string{id})
		if number%10 == 7 {
			one.WithDelayTimeLevel(1)
			words["kind"], words["delay_ns"] = "delayed", int64(r.delay)
		}
		if number%10 == 3 {
			words["kind"] = "half"
		}
		words["invoked"], words["wall_ms"] = monotonic(), time.Now().UnixMilli()
		r.write("sent", words)
		var result *primitive.SendResult
		var err error
		if words["kind"] == "half" {
			result, err = sendInTransaction(t, one)
		} else {
			result, err = p.SendSync(context.Background(), one)
		}
		if err != nil && (!strings.Contains(err.Error(), "CODE: ") || strings.Contains(err.Error(), notAvailable)) {
			time.Sleep(r.pause)
			continue
		}
		answer := line{"returned": monotonic(), "status": "maybe"}
		if err != nil {
			answer["status"] = "refused"
		} else if result.Status == primitive.SendOK {
			answer["status"], answer["queue_offset"] = "ok", result.QueueOffset
			answer["queue_id"] = result.MessageQueue.QueueId
		}
		for key, value := range words {
			if _, isKnown := answer[key]; !isKnown {
				answer[key] = value
			}
		}
		r.write("sent", answer)
		if answer["status"] != "refused" {
			return
		}
	}
}

// share assigns queues with the default strategy, and records changes of this client's share.
func (r *recorder) share(
	group, own string, all []*primitive.MessageQueue, members []string,
) []*primitive.MessageQueue {
	share := consumer.AllocateByAveragely(group, own, all, members)
	words := fmt.Sprint(share)
	r.mutex.Lock()
	isAnother := r.shares[all[0].Topic] != words
	r.shares[all[0].Topic] = words
	if isAnother {
		r.sessions++
	}
	r.mutex.Unlock()
	if isAnother {
		r.write("happened", line{"cause": "rebalance", "at": monotonic(), "group": r.group})
	}
	return share
}

func (r *recorder) session(isAgain bool) string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !isAgain {
		return fmt.Sprintf("%s-%d", r.name, r.sessions)
	}
	// If the client can't return a message, it delivers it again itself, between others.
	r.redelivered++
	return fmt.Sprintf("%s-again-%d", r.name, r.redelivered)
}

func (r *recorder) take(
	ctx context.Context, messages ...*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	from, _ := primitive.GetConcurrentlyCtx(ctx)
	result := consumer.ConsumeSuccess
	for _, one := range messages {
		id := one.GetKeys()
		r.write("delivered", line{
			"group": r.group, "session": r.session(one.ReconsumeTimes > 0), "id": id, "digest": digest(one.Body), "topic": from.MQ.Topic,
			"queue_id": from.MQ.QueueId, "queue_offset": one.QueueOffset, "at": monotonic(),
			"reconsume_times": one.ReconsumeTimes, "stored_ms": one.StoreTimestamp,
			"wall_ms": time.Now().UnixMilli(),
		})
		isDead := numberOf(id)%60 == 31
		if !isDead && (numberOf(id)%30 != 11 || one.ReconsumeTimes >= 2) {
			r.write("consumed", line{"group": r.group, "id": id, "at": monotonic()})
			continue
		}
		back := line{"group": r.group, "id": id, "at": monotonic(), "status": "maybe", "is_dead": isDead}
		from.DelayLevelWhenNextConsume = -1
		if !isDead {
			from.DelayLevelWhenNextConsume = 1
			back["delay_ns"] = int64(r.delay)
		}
		r.write("gave-back", back)
		result = consumer.ConsumeRetryLater
	}
	return result, nil
}

// record sends for some seconds or until a line of input, prints "rests", and consumes until the end of input.
func record(namesrv, topic, group, history string, seed int, duration, delay, pause time.Duration) {
	file, err := os.OpenFile(history, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	check(err)
	r := &recorder{
		history: file, topic: topic, group: group, name: fmt.Sprintf("go-%d", seed),
		// Records have times in whole milliseconds, so a second may seem one millisecond shorter.
		delay: delay - time.Millisecond, pause: pause, shares: map[string]string{},
	}
	resolver := primitive.NewPassthroughResolver(strings.Split(namesrv, ";"))
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(resolver),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		// One at a time, so that a queue's messages arrive in order.
		consumer.WithConsumeGoroutineNums(1),
		consumer.WithStrategy(r.share),
	)
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{}, r.take))
	check(c.Start())
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(resolver), producer.WithGroupName(group+"-producer"), producer.WithRetry(0),
	)
	check(err)
	check(p.Start())
	t, err := rocketmq.NewTransactionProducer(
		r, producer.WithNsResolver(resolver), producer.WithGroupName(group+"-transactions"), producer.WithRetry(0),
		// Producers of one instance share a connection, on which only the first one's group is checked.
		producer.WithInstanceName("transactions"),
	)
	check(err)
	check(t.Start())
	lines := bufio.NewScanner(os.Stdin)
	asked, ended := make(chan bool), make(chan bool)
	go func() {
		if lines.Scan() {
			close(asked)
		}
		for lines.Scan() {
		}
		close(ended)
	}()
	dice := rand.New(rand.NewSource(int64(seed)))
	over := time.After(duration)
	for i, goesOn := 1, true; goesOn; i++ {
		r.send(p, t, i, dice.Intn(recordedBodyMax))
		select {
		case <-asked:
			goesOn = false
		case <-ended:
			goesOn = false
		case <-over:
			goesOn = false
		case <-time.After(r.pause):
		}
	}
	fmt.Println("rests")
	<-ended
	check(t.Shutdown())
	check(p.Shutdown())
	check(c.Shutdown())
}
