// Sends and consumes by RocketMQ's 5.x client for Go. Prints one line for each thing that was done.
// clients ENDPOINT WHAT:TOPIC...      environment: TLS=1, ACCESS_KEY, SECRET_KEY
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const count = 20

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func require(holds bool, words string, more ...any) {
	if !holds {
		panic(fmt.Sprintf(words, more...))
	}
}

func config(group string) *rmq.Config {
	return &rmq.Config{
		Endpoint:      os.Args[1],
		ConsumerGroup: group,
		Credentials: &credentials.SessionCredentials{
			AccessKey: os.Getenv("ACCESS_KEY"), AccessSecret: os.Getenv("SECRET_KEY"),
		},
	}
}

func message(topic, body string) *rmq.Message {
	one := &rmq.Message{Topic: topic, Body: []byte(body)}
	one.SetTag("A")
	one.SetKeys(body)
	return one
}

func producing(topic string, work func(rmq.Producer), more ...rmq.ProducerOption) {
	producer, err := rmq.NewProducer(config(""), append(more, rmq.WithTopics(topic))...)
	check(err)
	check(producer.Start())
	work(producer)
	check(producer.GracefulStop())
}

func send(topic string, set func(*rmq.Message, int)) {
	producing(topic, func(producer rmq.Producer) {
		for number := 0; number < count; number++ {
			one := message(topic, fmt.Sprintf("%s-%d", topic, number))
			set(one, number)
			_, err := producer.Send(context.Background(), one)
			check(err)
		}
	})
}

func transaction(topic string) {
	asked := make(chan bool, 1000)
	checker := &rmq.TransactionChecker{Check: func(*rmq.MessageView) rmq.TransactionResolution {
		asked <- true
		return rmq.COMMIT
	}}
	producing(topic, func(producer rmq.Producer) {
		half := func(body string) rmq.Transaction {
			one := producer.BeginTransaction()
			_, err := producer.SendWithTransaction(context.Background(), message(topic, body), one)
			check(err)
			return one
		}
		for number := 0; number < count; number++ {
			one := half(fmt.Sprintf("%s-%d", topic, number))
			if number > 0 {
				check(one.Commit())
			}
		}
		check(half("rolled back").RollBack())
		select {
		case <-asked:
		case <-time.After(30 * time.Second):
			panic("no check-back came")
		}
		time.Sleep(time.Second)
	}, rmq.WithTransactionChecker(checker))
}

func receiving(topic string, expression *rmq.FilterExpression, wanted, rounds int) string {
	consumer, err := rmq.NewSimpleConsumer(config("simple-"+topic), rmq.WithSimpleAwaitDuration(6*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: expression}))
	check(err)
	check(consumer.Start())
	found := map[string]bool{}
	for round := 0; round < rounds && len(found) < wanted; round++ {
		messages, err := consumer.Receive(context.Background(), 16, 20*time.Second)
		if err != nil {
			time.Sleep(300 * time.Millisecond)
			continue
		}
		for _, one := range messages {
			if len(found)%7 == 3 {
				check(consumer.ChangeInvisibleDuration(one, 30*time.Second))
			}
			check(consumer.Ack(context.Background(), one))
			found[string(one.GetBody())] = true
		}
	}
	check(consumer.GracefulStop())
	bodies := []string{}
	for body := range found {
		bodies = append(bodies, body)
	}
	sort.Strings(bodies)
	require(len(found) == wanted && !found["rolled back"], "came: %v", bodies)
	return strings.Join(bodies, ",")
}

func listening(topic string, consume func(*rmq.MessageView) rmq.ConsumerResult, until func() bool) {
	consumer, err := rmq.NewPushConsumer(config("push-"+topic), rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.NewFilterExpression("A")}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}),
		rmq.WithPushConsumptionThreadCount(4), rmq.WithPushMaxCacheMessageCount(1024))
	check(err)
	check(consumer.Start())
	for round := 0; round < 600 && !until(); round++ {
		time.Sleep(100 * time.Millisecond)
	}
	require(until(), "the listener did not get everything")
	time.Sleep(500 * time.Millisecond)
	check(consumer.GracefulStop())
}

func push(topic string) { // fails one message once, so that it comes again
	var lock sync.Mutex
	done, failed := map[string]bool{}, 0
	listening(topic, func(one *rmq.MessageView) rmq.ConsumerResult {
		lock.Lock()
		defer lock.Unlock()
		body := string(one.GetBody())
		if strings.HasSuffix(body, "-7") && failed == 0 {
			failed++
			return rmq.FAILURE
		}
		done[body] = true
		return rmq.SUCCESS
	}, func() bool { lock.Lock(); defer lock.Unlock(); return len(done) == count })
	require(failed == 1, "failed: %d", failed)
}

func dead(topic string) { // fails every time, until the message is among the dead letters
	producing(topic, func(producer rmq.Producer) {
		_, err := producer.Send(context.Background(), message(topic, topic+"-dead"))
		check(err)
	})
	var lock sync.Mutex
	tries := 0
	listening(topic, func(*rmq.MessageView) rmq.ConsumerResult {
		lock.Lock()
		defer lock.Unlock()
		tries++
		return rmq.FAILURE
	}, func() bool { lock.Lock(); defer lock.Unlock(); return tries >= 2 })
	time.Sleep(2500 * time.Millisecond)
	require(tries == 2, "tried %d times", tries)
}

func filter(topic string) {
	producing(topic, func(producer rmq.Producer) {
		for number := 0; number < 6; number++ {
			one := message(topic, fmt.Sprintf("tag-%d", number))
			one.SetTag([]string{"C", "B"}[number%2])
			_, err := producer.Send(context.Background(), one)
			check(err)
		}
	})
	found := receiving(topic, rmq.NewFilterExpression("B || D"), 3, 12)
	require(found == "tag-1,tag-3,tag-5", "by tag: %s", found)
}

func sql(topic string) {
	producing(topic, func(producer rmq.Producer) {
		for number := 0; number < 6; number++ {
			one := message(topic, fmt.Sprintf("sql-%d", number))
			one.AddProperty("a", fmt.Sprint(number))
			_, err := producer.Send(context.Background(), one)
			check(err)
		}
	})
	found := receiving(topic, rmq.NewFilterExpressionWithType("a >= 4", rmq.SQL92), 2, 12)
	require(found == "sql-4,sql-5", "by SQL: %s", found)
}

func endure(topic string) { // sends on while the broker goes away and comes back
	producing(topic, func(producer rmq.Producer) {
		for number := 0; number < 200; number++ {
			for attempt := 0; ; attempt++ {
				_, err := producer.Send(context.Background(), message(topic, fmt.Sprintf("%s-%d", topic, number)))
				if err == nil {
					break
				}
				require(attempt < 200, "%v", err)
				time.Sleep(200 * time.Millisecond)
			}
			if number == 60 {
				fmt.Println("under way")
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	receiving(topic, rmq.SUB_ALL, 200, 60)
}

var work = map[string]func(string){
	"normal": func(topic string) { send(topic, func(one *rmq.Message, _ int) { one.AddProperty("n", "v") }) },
	"fifo": func(topic string) {
		send(topic, func(one *rmq.Message, number int) { one.SetMessageGroup(fmt.Sprintf("group-%d", number%3)) })
	},
	"delay": func(topic string) {
		send(topic, func(one *rmq.Message, _ int) { one.SetDelayTimestamp(time.Now().Add(2 * time.Second)) })
	},
	"priority": func(topic string) {
		send(topic, func(one *rmq.Message, number int) { check(one.SetPriority(int32(number % 4))) })
	},
	"transaction": transaction,
	"simple":      func(topic string) { receiving(topic, rmq.SUB_ALL, count, 12) },
	"push":        push,
	"dead":        dead,
	"filter":      filter,
	"sql":         sql,
	"endure":      endure,
}

func main() {
	rmq.EnableSsl = os.Getenv("TLS") == "1"
	rmq.ResetLogger()
	for _, word := range os.Args[2:] {
		what, topic, _ := strings.Cut(word, ":")
		work[what](topic)
		fmt.Println("done " + word)
	}
	os.Exit(0)
}
