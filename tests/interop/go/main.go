// SPDX-License-Identifier: Apache-2.0

// RocketMQ's client for Go, driven over standard input and output.  The commands are
// those of tests/interop/driver.py; each runs in a goroutine of its own.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// Command is what a line of the input says.
type Command struct {
	Id                int             `json:"id"`
	Op                string          `json:"op"`
	Name              string          `json:"name"`
	Group             string          `json:"group"`
	NameServers       string          `json:"nameServers"`
	How               string          `json:"how"`
	Key               string          `json:"key"`
	Topic             string          `json:"topic"`
	Expression        string          `json:"expression"`
	Type              string          `json:"type"`
	Messages          []*GivenMessage `json:"messages"`
	Message           *GivenMessage   `json:"message"`
	Subscriptions     []Subscription  `json:"subscriptions"`
	QueueId           int             `json:"queueId"`
	Offset            int64           `json:"offset"`
	Count             int             `json:"count"`
	Timeout           int             `json:"timeout"`
	CompressOver      int             `json:"compressOver"`
	MaxReconsumeTimes int32           `json:"maxReconsumeTimes"`
	Transactional     bool            `json:"transactional"`
	Trace             bool            `json:"trace"`
	Orderly           bool            `json:"orderly"`
	Broadcast         bool            `json:"broadcast"`
	Reply             bool            `json:"reply"`
}

// Subscription is a topic that a consumer wants.
type Subscription struct {
	Topic      string `json:"topic"`
	Expression string `json:"expression"`
	Type       string `json:"type"`
}

var (
	printing sync.Mutex
	// Members by the names that commands give them.
	senders   sync.Map
	receivers sync.Map
	pullers   sync.Map
)

func show(line map[string]interface{}) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(text))
}

func main() {
	rlog.SetLogLevel("warn")
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		command := new(Command)
		if err := json.Unmarshal(line, command); err != nil {
			panic(err)
		}
		go serve(command)
	}
}

func serve(command *Command) {
	result, err := run(command)
	if err != nil {
		show(map[string]interface{}{"id": command.Id, "error": err.Error()})
	} else {
		show(map[string]interface{}{"id": command.Id, "result": result})
	}
}

func run(command *Command) (interface{}, error) {
	switch command.Op {
	case "producer":
		return nil, newSender(command)
	case "consumer":
		return nil, newReceiver(command)
	case "puller":
		return nil, newPuller(command)
	case "stop":
		return nil, stop(command.Name)
	case "send":
		return senderOf(command.Name).send(command)
	case "request":
		return senderOf(command.Name).request(command)
	case "queues":
		return pullerOf(command.Name).queues(command)
	case "pull":
		return pullerOf(command.Name).pull(command)
	}
	return nil, fmt.Errorf("no command %s", command.Op)
}

func stop(name string) error {
	if found, there := senders.LoadAndDelete(name); there {
		return found.(*Sender).stop()
	}
	if found, there := receivers.LoadAndDelete(name); there {
		return found.(*Receiver).stop()
	}
	if found, there := pullers.LoadAndDelete(name); there {
		return found.(*Puller).stop()
	}
	return nil
}
