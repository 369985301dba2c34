// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Receiver is a consumer that messages are pushed to.
type Receiver struct {
	name     string
	orderly  bool
	consumer rocketmq.PushConsumer
	replier  rocketmq.Producer
}

func selector(expression string, kind string) consumer.MessageSelector {
	if kind == "SQL92" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
}

func newReceiver(command *Command) error {
	options := []consumer.Option{
		consumer.WithNsResolver(resolver(command)),
		consumer.WithGroupName(command.Group),
		consumer.WithInstance(command.Name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(command.Orderly),
	}
	if command.MaxReconsumeTimes > 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(command.MaxReconsumeTimes))
	}
	if command.Broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if command.Trace {
		options = append(options, consumer.WithTrace(&primitive.TraceConfig{
			GroupName: command.Group,
			Access:    primitive.Local,
			Resolver:  resolver(command),
		}))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	receiver := &Receiver{name: command.Name, orderly: command.Orderly, consumer: made}
	if command.Reply {
		receiver.replier, err = rocketmq.NewProducer(
			producer.WithNsResolver(resolver(command)),
			producer.WithGroupName(command.Group+"-repliers"),
			producer.WithInstanceName(command.Name+"-replier"),
		)
		if err != nil {
			return err
		}
		if err := receiver.replier.Start(); err != nil {
			return err
		}
	}
	for _, each := range command.Subscriptions {
		if err := made.Subscribe(each.Topic, selector(each.Expression, each.Type), receiver.take); err != nil {
			return err
		}
	}
	receivers.Store(command.Name, receiver)
	return made.Start()
}

// take gets one message at a time, which says how often it is to fail.
func (receiver *Receiver) take(
	ctx context.Context, messages ...*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	result := consumer.ConsumeSuccess
	for _, message := range messages {
		show(map[string]interface{}{"to": receiver.name, "message": showExt(message)})
		if receiver.replier != nil {
			if err := receiver.reply(ctx, message); err != nil {
				return consumer.ConsumeRetryLater, err
			}
		}
		times, err := strconv.Atoi(message.GetProperty("failTimes"))
		if err == nil && int(message.ReconsumeTimes) < times {
			result = consumer.ConsumeRetryLater
			if receiver.orderly {
				result = consumer.SuspendCurrentQueueAMoment
			}
		}
	}
	return result, nil
}

func (receiver *Receiver) reply(ctx context.Context, message *primitive.MessageExt) error {
	reply, err := consumer.CreateReplyMessage(message, nil)
	if err != nil {
		return err
	}
	// It takes a body and does not put it into the message.
	reply.Body = append([]byte("reply to "), message.Body...)
	_, err = receiver.replier.SendSync(ctx, reply)
	return err
}

func (receiver *Receiver) stop() error {
	if receiver.replier != nil {
		if err := receiver.replier.Shutdown(); err != nil {
			return err
		}
	}
	return receiver.consumer.Shutdown()
}

// Puller is a consumer that fetches messages.
type Puller struct {
	consumer rocketmq.PullConsumer
	admin    admin.Admin
	command  *Command
	started  bool
}

func pullerOf(name string) *Puller {
	found, _ := pullers.Load(name)
	return found.(*Puller)
}

func newPuller(command *Command) error {
	made, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(resolver(command)),
		consumer.WithGroupName(command.Group),
		consumer.WithInstance(command.Name),
	)
	if err != nil {
		return err
	}
	looking, err := admin.NewAdmin(admin.WithResolver(resolver(command)))
	if err != nil {
		return err
	}
	pullers.Store(command.Name, &Puller{consumer: made, admin: looking, command: command})
	return nil
}

func (puller *Puller) queuesOf(topic string) ([]*primitive.MessageQueue, error) {
	return puller.admin.FetchPublishMessageQueues(context.Background(), topic)
}

func (puller *Puller) queues(command *Command) (interface{}, error) {
	found, err := puller.queuesOf(command.Topic)
	ids := make([]int, 0)
	for _, each := range found {
		ids = append(ids, each.QueueId)
	}
	return ids, err
}

func (puller *Puller) pull(command *Command) (interface{}, error) {
	if !puller.started {
		// It has one topic and one expression, and wants them before it starts.
		puller.started = true
		if err := puller.consumer.Subscribe(
			command.Topic, selector(command.Expression, command.Type)); err != nil {
			return nil, err
		}
		if err := puller.consumer.Start(); err != nil {
			return nil, err
		}
	}
	found, err := puller.queuesOf(command.Topic)
	if err != nil {
		return nil, err
	}
	for _, queue := range found {
		if queue.QueueId != command.QueueId {
			continue
		}
		result, err := puller.consumer.PullFrom(
			context.Background(), queue, command.Offset, command.Count)
		if err != nil {
			return nil, err
		}
		messages := make([]interface{}, 0)
		for _, each := range result.GetMessageExts() {
			messages = append(messages, showExt(each))
		}
		return map[string]interface{}{
			"status":   pulled[result.Status],
			"next":     result.NextBeginOffset,
			"min":      result.MinOffset,
			"max":      result.MaxOffset,
			"messages": messages,
		}, nil
	}
	return nil, fmt.Errorf("no queue %d", command.QueueId)
}

var pulled = map[primitive.PullStatus]string{
	primitive.PullFound:         "FOUND",
	primitive.PullNoNewMsg:      "NO_NEW_MSG",
	primitive.PullNoMsgMatched:  "NO_MATCHED_MSG",
	primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
}

func (puller *Puller) stop() error {
	if puller.started {
		return puller.consumer.Shutdown()
	}
	return nil
}
