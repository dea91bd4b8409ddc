// Leader election of client-go on a Lease, as its own example has it. Prints "leading" and "lost". With a
// command, it runs that while it leads.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig")
	namespace := flag.String("namespace", "default", "the Lease's namespace")
	name := flag.String("name", "", "the Lease's name")
	id := flag.String("id", "client-go", "what the Lease shows as its holder")
	ttl := flag.Duration("ttl", 15*time.Second, "LeaseDuration; RenewDeadline is 2/3 of it, RetryPeriod 2/15")
	klog.InitFlags(nil)
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: *namespace, Name: *name},
		Client:     clientset.NewForConfigOrDie(config).CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: *id},
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var command *exec.Cmd
	if words := flag.Args(); len(words) > 0 {
		command = exec.CommandContext(ctx, words[0], words[1:]...)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
	}
	began, ended := make(chan struct{}), make(chan struct{})

	go func() {
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, os.Interrupt, syscall.SIGTERM)
		<-terminated
		// ReleaseOnCancel demands that the work has ended before the context is cancelled.
		select {
		case <-began:
			if command != nil {
				_ = command.Process.Signal(syscall.SIGTERM)
				<-ended
			}
		default:
		}
		cancel()
	}()

	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		ReleaseOnCancel: true,
		LeaseDuration:   *ttl,
		RenewDeadline:   *ttl * 2 / 3,
		RetryPeriod:     *ttl * 2 / 15,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				fmt.Println("leading")
				if command == nil {
					return
				}
				if err := command.Start(); err != nil {
					log.Fatal(err)
				}
				close(began)
				_ = command.Wait()
				close(ended)
				cancel()
			},
			OnStoppedLeading: func() {
				fmt.Println("lost")
				os.Exit(0)
			},
		},
	})
}
