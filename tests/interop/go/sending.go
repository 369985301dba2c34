// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const timeout = 10 * time.Second

// Sender is a producer, of one kind or the other.
type Sender struct {
	plain         rocketmq.Producer
	transactional rocketmq.TransactionProducer
}

func senderOf(name string) *Sender {
	found, _ := senders.Load(name)
	return found.(*Sender)
}

// chosen sends to the queue that a message names, if it names one, or by its sharding
// key, if it has one, or else to each queue in turn.
type chosen struct {
	hash, turn producer.QueueSelector
}

func (selector chosen) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, last string,
) *primitive.MessageQueue {
	if message.Queue != nil {
		for _, each := range queues {
			if each.QueueId == message.Queue.QueueId {
				return each
			}
		}
		return nil
	}
	if message.GetShardingKey() != "" {
		return selector.hash.Select(message, queues, last)
	}
	return selector.turn.Select(message, queues, last)
}

func resolver(command *Command) primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{command.NameServers})
}

func newSender(command *Command) error {
	options := []producer.Option{
		producer.WithNsResolver(resolver(command)),
		producer.WithGroupName(command.Group),
		producer.WithInstanceName(command.Name),
		producer.WithSendMsgTimeout(timeout),
		producer.WithQueueSelector(
			chosen{producer.NewHashQueueSelector(), producer.NewRoundRobinQueueSelector()}),
	}
	if command.CompressOver > 0 {
		options = append(options, producer.WithCompressMsgBodyOverHowmuch(command.CompressOver))
	}
	if command.Trace {
		options = append(options, producer.WithTrace(&primitive.TraceConfig{
			GroupName: command.Group,
			Access:    primitive.Local,
			Resolver:  resolver(command),
		}))
	}
	sender := new(Sender)
	senders.Store(command.Name, sender)
	if command.Transactional {
		made, err := rocketmq.NewTransactionProducer(told{}, options...)
		if err != nil {
			return err
		}
		sender.transactional = made
		return made.Start()
	}
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return err
	}
	sender.plain = made
	return made.Start()
}

func (sender *Sender) stop() error {
	if sender.transactional != nil {
		return sender.transactional.Shutdown()
	}
	return sender.plain.Shutdown()
}

func (sender *Sender) send(command *Command) (interface{}, error) {
	messages := make([]*primitive.Message, 0)
	for _, given := range command.Messages {
		message := given.read()
		switch command.How {
		case "queue":
			message.Queue = &primitive.MessageQueue{QueueId: command.QueueId}
		case "selector":
			message.WithShardingKey(command.Key)
		}
		messages = append(messages, message)
	}
	if command.How == "batch" {
		result, err := sender.plain.SendSync(context.Background(), messages...)
		if err != nil {
			return nil, err
		}
		return []interface{}{showResult(result)}, nil
	}
	if command.How == "async" {
		return sender.async(messages)
	}
	results := make([]interface{}, 0)
	for _, message := range messages {
		result, err := sender.one(message, command.How)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

func (sender *Sender) one(message *primitive.Message, how string) (interface{}, error) {
	switch how {
	case "oneway":
		return nil, sender.plain.SendOneWay(context.Background(), message)
	case "transaction":
		result, err := sender.transactional.SendMessageInTransaction(context.Background(), message)
		if err != nil {
			return nil, err
		}
		shown := showResult(result.SendResult)
		shown["transactionId"] = result.TransactionID
		shown["state"] = names[result.State]
		return shown, nil
	}
	result, err := sender.plain.SendSync(context.Background(), message)
	if err != nil {
		return nil, err
	}
	return showResult(result), nil
}

func (sender *Sender) async(messages []*primitive.Message) (interface{}, error) {
	var left sync.WaitGroup
	left.Add(len(messages))
	results := make([]interface{}, len(messages))
	problems := make(chan error, 2*len(messages))
	for i, message := range messages {
		place := i
		err := sender.plain.SendAsync(context.Background(),
			func(ctx context.Context, result *primitive.SendResult, err error) {
				if err != nil {
					problems <- err
				} else {
					results[place] = showResult(result)
				}
				left.Done()
			}, message)
		if err != nil {
			return nil, err
		}
	}
	left.Wait()
	select {
	case problem := <-problems:
		return nil, problem
	default:
		return results, nil
	}
}

func (sender *Sender) request(command *Command) (interface{}, error) {
	limit := time.Duration(command.Timeout) * time.Millisecond
	reply, err := sender.plain.Request(context.Background(), limit, command.Message.read())
	if err != nil {
		return nil, err
	}
	return showMessage(reply), nil
}

var statuses = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

func showResult(result *primitive.SendResult) map[string]interface{} {
	return map[string]interface{}{
		"status":      statuses[result.Status],
		"msgId":       result.MsgID,
		"offsetMsgId": result.OffsetMsgID,
		"queueId":     result.MessageQueue.QueueId,
		"queueOffset": result.QueueOffset,
	}
}

var names = map[primitive.LocalTransactionState]string{
	primitive.CommitMessageState:   "COMMIT_MESSAGE",
	primitive.RollbackMessageState: "ROLLBACK_MESSAGE",
	primitive.UnknowState:          "UNKNOW",
}

// told does what a message's properties tell it to.
type told struct{}

func state(name string) primitive.LocalTransactionState {
	for each, known := range names {
		if known == name {
			return each
		}
	}
	panic(fmt.Sprintf("no state %q", name))
}

func (told) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return state(message.GetProperty("local"))
}

func (told) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	return state(message.GetProperty("check"))
}
