package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// through sends until a line of input, whatever happens to the broker, and consumes until another one
// arrives.
func through(namesrv, topic, group string) {
	var mutex sync.Mutex
	say := func(words ...any) {
		mutex.Lock()
		defer mutex.Unlock()
		fmt.Println(words...)
	}
	resolver := primitive.NewPassthroughResolver([]string{namesrv})
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(resolver),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, all ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, one := range all {
			say("received", one.GetKeys())
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(c.Start())
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(resolver),
		producer.WithGroupName(group+"-producer"),
		producer.WithRetry(2),
	)
	check(err)
	check(p.Start())
	lines := bufio.NewScanner(os.Stdin)
	over := make(chan bool)
	go func() {
		lines.Scan()
		close(over)
	}()
	statuses := map[primitive.SendStatus]string{
		primitive.SendOK:                "SEND_OK",
		primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
		primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
		primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	}
	for i, goesOn := 0, true; goesOn; i++ {
		key := fmt.Sprintf("k%d", i)
		one := primitive.NewMessage(topic, []byte("body of "+key)).WithKeys([]string{key})
		result, err := p.SendSync(context.Background(), one)
		if err != nil {
			say("failed", key)
		} else {
			say("sent", key, statuses[result.Status])
		}
		select {
		case <-over:
			goesOn = false
		case <-time.After(50 * time.Millisecond):
		}
	}
	lines.Scan()
	check(p.Shutdown())
	check(c.Shutdown())
}
