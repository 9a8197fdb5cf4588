/* One lock per node, shared by all processes, that outlives whoever dies holding it. */
#include "state.h"

#include <errno.h>

void node_lock(struct node *node)
{
    if (pthread_mutex_lock(&node->mutex) != EOWNERDEAD)
        return;
    /* A process died inside. Segments are committed by one counter, so the timeline is whole; what may be missing is
     * the segment that follows a control it had just written. */
    int64_t now_ns = node_now(node);
    for (uint32_t index = 0; index < node->devices; index++)
        model_refresh(&node->device[index], now_ns);
    pthread_mutex_consistent(&node->mutex);
}

void node_unlock(struct node *node)
{
    pthread_mutex_unlock(&node->mutex);
}
